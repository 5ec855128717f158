package postgres

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/lock"
)

const leaseName = "lease"

// lease is a table with one row for each lock: its owner, its end by the server's clock, and a token.
//
// The token counts the grants. The statement that makes the grant also increments the token, in the same row version
// and under the row's lock. So the token is logged together with the grant or not at all, and it orders grants as the
// server did. It is therefore a number of the service, not a counter beside the lock. With synchronous_commit off, a
// crash loses grant and number together.
func lease() backends.Lock {
	return backends.Lock{
		Name: leaseName,
		Doc:  "A row with owner, expiry by the server's clock and a growing token, taken by one INSERT ... ON CONFLICT DO UPDATE.",
		Offers: backends.Offers{
			Try: true, Renewal: "call", Token: backends.TokenService, Reentrant: "no", Expires: true, WallClock: true,
		},
		Points: []string{"before-lease", "lease-done", "before-release", "release-done"},
		MinTTL: 10 * time.Millisecond,
		// A user that asks when the row expires may still be waiting for an earlier attempt, for as long as a
		// statement may take.
		Recovery: func(ttl time.Duration, params json.RawMessage) time.Duration {
			var p LockParams
			if err := json.Unmarshal(params, &p); err != nil {
				p.Timeout = 0
			}
			return ttl + p.Timeout + time.Second
		},
		Dial: func(_ context.Context, a backends.Access) (backends.Connection, error) {
			c, err := newConnection(a)
			if err != nil {
				return nil, err
			}
			c.locker = func(ctx context.Context, user int) (lock.Locker, error) { return newLeaser(ctx, c, user) }
			return c, nil
		},
	}
}

// The statements. An attempt on a held lock ends at the NOT EXISTS and writes nothing. Two attempts that pass it are
// serialized by the row's lock, and the second finds the update's condition false. The end is computed when the row
// is written, not when the statement began.
const (
	leaseTable = `CREATE TABLE IF NOT EXISTS lockquake_lease (
		name text PRIMARY KEY, owner text, token bigint NOT NULL, expires timestamptz NOT NULL) WITH (fillfactor = 50)`
	leaseTake = `INSERT INTO lockquake_lease AS l (name, owner, token, expires)
		SELECT $1::text, $2::text, 1, clock_timestamp() + $3::bigint * interval '1 microsecond'
		WHERE NOT EXISTS (SELECT FROM lockquake_lease h WHERE h.name = $1::text AND h.expires > clock_timestamp())
		ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, token = l.token + 1,
			expires = clock_timestamp() + $3::bigint * interval '1 microsecond'
		WHERE l.expires <= clock_timestamp()
		RETURNING l.token`
	leaseGive  = `UPDATE lockquake_lease SET owner = NULL, expires = '-infinity' WHERE name = $1 AND owner = $2`
	leaseRenew = `UPDATE lockquake_lease SET expires = clock_timestamp() + $4::bigint * interval '1 microsecond'
		WHERE name = $1 AND owner = $2 AND token = $3 AND expires > clock_timestamp()`
	leaseCheck = `SELECT EXISTS (SELECT FROM lockquake_lease
		WHERE name = $1 AND owner = $2 AND token = $3 AND expires > clock_timestamp())`
)

// leaser is one user of the lease lock.
type leaser struct {
	conn    *connection
	user    int
	random  *mathrand.Rand
	session *session
	held    map[string]lock.Grant // by id: to be released by Close
	doubted map[string]lock.Grant // by id: grants that the server may have for this user without the user's knowledge
}

func newLeaser(ctx context.Context, c *connection, user int) (lock.Locker, error) {
	s, err := c.first(ctx, user)
	if err != nil {
		return nil, err
	}
	return &leaser{
		conn: c, user: user, random: backends.Random(c.access.Run, user), session: s,
		held: map[string]lock.Grant{}, doubted: map[string]lock.Grant{},
	}, nil
}

// do runs a statement within the timeout, on a new connection if the old one is gone. It returns the send time.
func (l *leaser) do(ctx context.Context, f func(ctx context.Context, c *pgx.Conn) error) (sent time.Time, err error) {
	if l.session.lost() {
		s, err := l.conn.again(ctx, l.user)
		if err != nil {
			return time.Time{}, err
		}
		l.session = s
	}
	ctx, done := context.WithTimeout(ctx, l.conn.params.Timeout)
	defer done()
	err = l.session.do(ctx, f)
	return l.session.link.sentAt(), err
}

// Acquire polls until the lock is free.
func (l *leaser) Acquire(ctx context.Context, r lock.Request) (lock.Grant, error) {
	return l.conn.params.Retry.Poll(ctx, l.random, func(ctx context.Context) (lock.Grant, error) {
		return l.TryAcquire(ctx, r)
	})
}

// TryAcquire makes one attempt.
func (l *leaser) TryAcquire(ctx context.Context, r lock.Request) (lock.Grant, error) {
	l.releaseDoubtful(ctx)
	var random [20]byte
	_, _ = rand.Read(random[:]) // never fails: the runtime ends the program instead
	owner := hex.EncodeToString(random[:])
	lock.At(ctx, "before-lease")
	var token int64
	sent, err := l.do(ctx, func(ctx context.Context, c *pgx.Conn) error {
		return c.QueryRow(ctx, leaseTake, r.Lock, owner, r.TTL.Microseconds()).Scan(&token)
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return lock.Grant{}, fmt.Errorf("%w: the row of %s has not expired", lock.ErrContended, r.Lock)
	}
	switch {
	case withdrawn(ctx, err):
		return lock.Grant{}, fmt.Errorf("take the row: %w; gave up waiting: %w", lock.ErrContended, err)
	case err != nil && !lock.Certain(err):
		l.doubted[owner] = lock.Grant{Lock: r.Lock, ID: owner, ValidUntil: backends.Validity(sent, r.TTL)}
		fallthrough
	case err != nil:
		return lock.Grant{}, fmt.Errorf("take the row: %w", err)
	}
	lock.At(ctx, "lease-done")
	g := lock.Grant{
		Lock: r.Lock, Mode: lock.Exclusive, ID: owner, Token: lock.Token(token),
		Issued: sent, ValidUntil: backends.Validity(sent, r.TTL),
	}
	l.held[g.ID] = g
	return g, nil
}

// change updates the grant's row and reports whether it found it.
func (l *leaser) change(ctx context.Context, sql string, args ...any) (found bool, sent time.Time, err error) {
	sent, err = l.do(ctx, func(ctx context.Context, c *pgx.Conn) error {
		tag, err := c.Exec(ctx, sql, args...)
		found = tag.RowsAffected() > 0
		return err
	})
	return found, sent, err
}

// releaseDoubtful releases rows that the user may have without knowing. An acquire of unknown outcome may have taken
// one, and a failed release may have left one; other users would wait until it expires. A row that is missing may
// still appear, because a statement may still be running. So each release is repeated until it succeeds or the
// grant's validity is over.
func (l *leaser) releaseDoubtful(ctx context.Context) {
	for id, g := range l.doubted {
		if found, _, err := l.change(ctx, leaseGive, g.Lock, id); err == nil && found ||
			!g.ValidUntil.Covers(time.Now()) {
			delete(l.doubted, id)
		}
	}
}

// Release gives the row back if it is still this grant's. If that may have failed, the user's next attempt releases
// it first.
func (l *leaser) Release(ctx context.Context, g lock.Grant) error {
	lock.At(ctx, "before-release")
	delete(l.held, g.ID)
	found, _, err := l.change(ctx, leaseGive, g.Lock, g.ID)
	if err != nil {
		l.doubted[g.ID] = g
		return fmt.Errorf("release the row: %w", err)
	}
	lock.At(ctx, "release-done")
	if !found {
		return gone(g)
	}
	return nil
}

func gone(g lock.Grant) error {
	return fmt.Errorf("%w: the row of %s has another owner, or has expired", lock.ErrNotHeld, g.Lock)
}

// Renew sets a later end if the row is still this grant's and has not expired.
func (l *leaser) Renew(ctx context.Context, g lock.Grant, ttl time.Duration) (lock.Grant, error) {
	found, sent, err := l.change(ctx, leaseRenew, g.Lock, g.ID, int64(g.Token), ttl.Microseconds())
	if err != nil {
		return g, fmt.Errorf("extend the row: %w", err)
	}
	if !found {
		delete(l.held, g.ID)
		return g, gone(g)
	}
	g.ValidUntil = backends.Validity(sent, ttl)
	l.held[g.ID] = g
	return g, nil
}

// Check reads the row.
func (l *leaser) Check(ctx context.Context, g lock.Grant) error {
	var stands bool
	_, err := l.do(ctx, func(ctx context.Context, c *pgx.Conn) error {
		return c.QueryRow(ctx, leaseCheck, g.Lock, g.ID, int64(g.Token)).Scan(&stands)
	})
	if err != nil {
		return fmt.Errorf("read the row: %w", err)
	}
	if !stands {
		return gone(g)
	}
	return nil
}

// Close frees what the user may still hold, within one statement's timeout, and ends the session; anything left
// expires.
func (l *leaser) Close() error {
	ctx, done := context.WithTimeout(context.Background(), l.conn.params.Timeout)
	defer done()
	l.releaseDoubtful(ctx)
	var errs []error
	for _, g := range l.held {
		if !g.ValidUntil.Covers(time.Now()) {
			continue
		}
		if err := l.Release(ctx, g); err != nil && !errors.Is(err, lock.ErrNotHeld) {
			errs = append(errs, err)
		}
	}
	l.session.close()
	return errors.Join(errs...)
}
