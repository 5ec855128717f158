package postgres

import (
	"context"
	"errors"
	"net/url"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lockquake/lockquake/backends"
)

const rowName = "row"

// row is SELECT ... FOR UPDATE on a row that stands for the lock, held by an open transaction.
//
// The first user that finds no row inserts it, in a separate transaction. The lock is free again when the holder's
// transaction ends: by the release's COMMIT, or because the session ended. So a stopped client keeps it, as with the
// advisory lock. There is no token either: anything that the transaction wrote into the row would be lost with the
// session. In the moment between two holders a newcomer may pass the waiters. A user who holds two locks needs two
// connections.
func row() backends.Lock {
	return backends.Lock{
		Name: rowName,
		Doc:  "SELECT ... FOR UPDATE in a transaction that stays open (PostgreSQL manual, 13.3.2); held until it ends.",
		Offers: backends.Offers{
			Blocking: true, Try: true, Renewal: "none", LossSignal: true, Token: backends.TokenNone, Reentrant: "no",
		},
		Points:   []string{"before-lock", "lock-done", "before-unlock", "unlock-done"},
		Recovery: backends.RecoversIn(func(time.Duration) time.Duration { return sessionRecovery }),
		Dial: recipe{
			take: takeRow, give: giveRow, alone: true,
			undo: func(ctx context.Context, c *pgx.Conn, _ string) error {
				_, err := c.Exec(ctx, "ROLLBACK")
				return err
			},
			check: func(ctx context.Context, c *pgx.Conn, name string) (bool, error) {
				return truth(ctx, c, `SELECT EXISTS (SELECT FROM lockquake_row WHERE name = $1 AND xmax = pg_current_xact_id_if_assigned()::xid)`, name)
			},
		}.dial,
	}
}

const rowTable = `CREATE TABLE IF NOT EXISTS lockquake_row (name text PRIMARY KEY)`

func takeRow(ctx context.Context, c *pgx.Conn, name string, wait bool) (bool, error) {
	sql := `SELECT name FROM lockquake_row WHERE name = $1 FOR UPDATE`
	if !wait {
		sql += ` NOWAIT`
	}
	for {
		if _, err := c.Exec(ctx, "BEGIN"); err != nil {
			return false, err
		}
		var found string
		err := c.QueryRow(ctx, sql, name).Scan(&found)
		var answer *pgconn.PgError
		switch {
		case errors.Is(err, pgx.ErrNoRows):
		case !wait && errors.As(err, &answer) &&
			answer.Code == codeLockNotAvailable: // the wait exceeded the server's lock_timeout
			_, err = c.Exec(ctx, "ROLLBACK")
			return false, err
		default:
			return err == nil, err
		}
		if _, err := c.Exec(ctx, "ROLLBACK"); err != nil {
			return false, err
		}
		if _, err := c.Exec(ctx, `INSERT INTO lockquake_row (name) VALUES ($1) ON CONFLICT DO NOTHING`,
			name); err != nil {
			return false, err
		}
	}
}

// giveRow ends the transaction. The comment names the lock in the server log.
func giveRow(ctx context.Context, c *pgx.Conn, name string) (bool, error) {
	tag, err := c.Exec(ctx, "COMMIT /* "+url.QueryEscape(name)+" */")
	// If an error had already ended the transaction, and with it the lock, the server answers ROLLBACK.
	return tag.String() == "COMMIT", err
}
