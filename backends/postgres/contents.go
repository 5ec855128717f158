package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/lockquake/lockquake/backends/topology"
)

var _ topology.ContentCounter = (*service)(nil)

// Contents counts the rows of all tables other than the server's own, advisory locks, and sessions.
func (s *service) Contents(ctx context.Context) (map[string]topology.Content, error) {
	rows := topology.Content{PerUser: 1, PerLock: 4}
	advisory := topology.Content{PerUser: 1}
	sessions := topology.Content{PerUser: 10, PerLock: 2, Attached: true}
	err := s.member.ask(ctx, func(ctx context.Context, c *pgx.Conn) error {
		err := c.QueryRow(ctx, `SELECT (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'),
			(SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend')`).Scan(&advisory.N, &sessions.N)
		if err != nil {
			return err
		}
		found, err := c.Query(ctx, `SELECT schemaname, tablename FROM pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema')`)
		if err != nil {
			return err
		}
		tables, err := pgx.CollectRows(found, func(r pgx.CollectableRow) (name pgx.Identifier, err error) {
			name = make(pgx.Identifier, 2)
			return name, r.Scan(&name[0], &name[1])
		})
		if err != nil {
			return err
		}
		for _, t := range tables {
			var n int64
			if err := c.QueryRow(ctx, "SELECT count(*) FROM "+t.Sanitize()).Scan(&n); err != nil {
				return fmt.Errorf("count the rows of %v: %w", t, err)
			}
			rows.N += n
		}
		return nil
	})
	return map[string]topology.Content{"rows": rows, "advisory locks": advisory, "sessions": sessions}, err
}
