package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/lockquake/lockquake/chaos"
)

var _ chaos.WriteRefuser = maintenance{}

// Capabilities returns what faults may use.
func (s *service) Capabilities() []any { return []any{maintenance{s.member}} }

// maintenance is what faults may ask the server to do, as an operator could.
type maintenance struct{ member *member }

// Promotes returns an error: there is no other server to take over.
func (maintenance) Promotes() error {
	return chaos.Unavailable{
		What:   "an orderly failover",
		Reason: "there is only one server, without a standby; use the fault restart",
	}
}

// RefuseWrites makes every new transaction read-only, including those of open sessions, which notice with their next
// command. Advisory locks are not writes, so they are still granted.
func (x maintenance) RefuseWrites(ctx context.Context, _ string) (string, func(context.Context) error, error) {
	set := func(ctx context.Context, to string) error {
		return x.member.ask(ctx, func(ctx context.Context, c *pgx.Conn) error {
			_, err := c.Exec(ctx, "ALTER SYSTEM "+to)
			_, err2 := c.Exec(ctx, "SELECT pg_reload_conf()")
			return errors.Join(err, err2)
		})
	}
	const readOnly = "default_transaction_read_only"
	allow := func(ctx context.Context) error { return set(ctx, "RESET "+readOnly) }
	return "ALTER SYSTEM SET " + readOnly + " = on", allow, set(ctx, "SET "+readOnly+" = on")
}
