package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/lockquake/lockquake/chaos"
)

var _ chaos.WriteRefuser = maintenance{}

// Capabilities lists what faults may ask of the server.
func (s *service) Capabilities() []any { return []any{maintenance{s.member}} }

// maintenance is what an operator may ask of the server.
type maintenance struct{ member *member }

// Promotes says that there is nobody to take over.
func (maintenance) Promotes() error {
	return chaos.Unavailable{
		What:   "a failover in order",
		Reason: "there is one server without a standby, and nobody to take over from it; use the fault restart",
	}
}

// RefuseWrites makes every new transaction read-only, of sessions that are open too, as they learn of it with their next
// command. Advisory locks are no writes: they are granted all the same.
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
