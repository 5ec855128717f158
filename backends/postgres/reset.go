package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockquake/lockquake/backends/topology"
)

var _ topology.Resetter = (*service)(nil)

// resetPatience is how long the sessions of former clients may take to end.
const resetPatience = 3 * time.Second

// remains counts what must be gone, as rows of a name and a number.
const remains = `
	SELECT 'sessions of lock users', count(*) FROM pg_stat_activity WHERE usename = '` + clientRole + `'
	UNION ALL SELECT 'advisory locks', count(*) FROM pg_locks WHERE locktype = 'advisory'
	UNION ALL SELECT 'prepared transactions', count(*) FROM pg_prepared_xacts
	UNION ALL SELECT 'leases', count(*) FROM lockquake_lease
	UNION ALL SELECT 'rows of locks', count(*) FROM lockquake_row
	UNION ALL SELECT 'tables of others', count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE c.relkind IN ('r', 'p', 'v', 'm', 'S', 'f') AND n.nspname NOT LIKE 'pg\_%' AND n.nspname <> 'information_schema'
			AND c.relname NOT IN ('lockquake_ready', 'lockquake_lease', 'lockquake_row')`

// Reset ends all sessions of lock users and empties the tables of the locks.
func (s *service) Reset(ctx context.Context) ([]string, error) {
	var ended int
	err := s.member.ask(ctx, func(ctx context.Context, c *pgx.Conn) error {
		err := c.QueryRow(ctx, `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE usename = $1`,
			clientRole).Scan(&ended)
		if err != nil {
			return fmt.Errorf("end the sessions of lock users: %w", err)
		}
		// It waits for transactions that are about to end.
		if _, err := c.Exec(ctx, `TRUNCATE lockquake_lease, lockquake_row, lockquake_ready`); err != nil {
			return fmt.Errorf("empty the tables of the locks: %w", err)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	err = topology.Until(ctx, resetPatience, func(ctx context.Context) error { return s.member.ask(ctx, nothingLeft) })
	if err != nil {
		return nil, err
	}
	return []string{fmt.Sprintf("%s: %d sessions of lock users were ended and the tables of the locks emptied; no "+
		"such session, lease, row, advisory lock or prepared transaction is left, and no foreign "+
		"table", s.member.name, ended)}, nil
}

// nothingLeft returns an error while anything remains.
func nothingLeft(ctx context.Context, c *pgx.Conn) error {
	rows, err := c.Query(ctx, remains)
	if err != nil {
		return fmt.Errorf("count what remains: %w", err)
	}
	var what string
	var n int
	var left []error
	_, err = pgx.ForEachRow(rows, []any{&what, &n}, func() error {
		if n > 0 {
			left = append(left, fmt.Errorf("there are %d %s", n, what))
		}
		return nil
	})
	return errors.Join(append(left, err)...)
}

// Settings returns the server's settings in the supervisor's session, and the roles that may log in.
func (s *service) Settings(ctx context.Context) (map[string]string, error) {
	out := map[string]string{}
	err := s.member.ask(ctx, func(ctx context.Context, c *pgx.Conn) error {
		rows, err := c.Query(ctx, `SELECT name, setting FROM pg_settings UNION ALL
			SELECT 'role ' || rolname, rolcanlogin::text || ' ' || coalesce(rolconfig::text, '') FROM pg_roles UNION ALL
			SELECT 'of ' || setdatabase || ' ' || setrole, setconfig::text FROM pg_db_role_setting`)
		if err != nil {
			return err
		}
		var name, value string
		_, err = pgx.ForEachRow(rows, []any{&name, &value},
			func() error { out[s.member.name+" "+name] = value; return nil })
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("settings of %s: %w", s.member.name, err)
	}
	return out, nil
}
