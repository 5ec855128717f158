package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockquake/lockquake/backends"
)

const advisoryName = "advisory"

// sessionRecovery is within what time after the end of a connection the server grants its session's locks again.
const sessionRecovery = 5 * time.Second

// advisory is the session-level advisory lock: the server's own lock table, in memory.
//
// Its key is a 64-bit hash of the lock's name, computed by the server. With a prefix the key is two integers: the
// prefix's class and a hash of the name. The lock is re-entrant within a session. It is held until it is unlocked or
// the session ends, so a stopped client holds it as long as it is stopped: its kernel still answers. There is no
// fencing token. A cancelled wait is followed by an unlock: the cancel may have come too late to prevent the grant,
// and an error does not undo a session-level lock.
func advisory() backends.Lock {
	return backends.Lock{
		Name: advisoryName,
		Doc:  "pg_advisory_lock on a session of its own (PostgreSQL manual, 13.3.5); held until unlocked or disconnected.",
		Offers: backends.Offers{
			Blocking: true, Try: true, Renewal: "none", LossSignal: true, Token: backends.TokenNone,
			Reentrant: "connection", Fair: true, Reenters: true,
		},
		Points:   []string{"before-lock", "lock-done", "before-unlock", "unlock-done"},
		Recovery: backends.RecoversIn(func(time.Duration) time.Duration { return sessionRecovery }),
		Dial:     dialAdvisory,
	}
}

// dialAdvisory connects a client whose locks are in its access's keyspace.
func dialAdvisory(ctx context.Context, a backends.Access) (backends.Connection, error) {
	keys := keyspace(a.Prefix)
	var (
		key    = `(` + keys.advisory() + `)`
		unlock = `SELECT pg_advisory_unlock` + key
		has    = `SELECT EXISTS (SELECT FROM pg_locks WHERE granted AND pid = pg_backend_pid() AND ` + keys.entry() +
			`)`
	)
	return recipe{
		take: func(ctx context.Context, c *pgx.Conn, name string, wait bool) (bool, error) {
			if wait {
				_, err := c.Exec(ctx, `SELECT pg_advisory_lock`+key, name)
				return err == nil, err
			}
			return truth(ctx, c, `SELECT pg_try_advisory_lock`+key, name)
		},
		undo: func(ctx context.Context, c *pgx.Conn, name string) error {
			_, err := truth(ctx, c, unlock, name)
			return err
		},
		give: func(ctx context.Context, c *pgx.Conn, name string) (bool, error) {
			return truth(ctx, c, unlock, name)
		},
		check: func(ctx context.Context, c *pgx.Conn, name string) (bool, error) {
			return truth(ctx, c, has, name)
		},
	}.dial(ctx, a)
}

// truth asks for one boolean.
func truth(ctx context.Context, c *pgx.Conn, sql string, args ...any) (is bool, err error) {
	err = c.QueryRow(ctx, sql, args...).Scan(&is)
	return is, err
}
