// Package postgres keeps what locks protect in a PostgreSQL server of its own.
package postgres

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lockquake/lockquake/backends/postgres"
	"github.com/lockquake/lockquake/internal/node"
	"github.com/lockquake/lockquake/internal/wire"
	"github.com/lockquake/lockquake/lock"
	"github.com/lockquake/lockquake/workloads"
	"github.com/lockquake/lockquake/workloads/resource"
)

const name = "postgres"

// Kind describes a PostgreSQL server with a row for each lock.
func Kind() resource.Kind {
	return resource.Kind{
		Name: name,
		Doc:  "A PostgreSQL server: one row per lock, with the last fencing token, a version and a stock; seats with a unique key; and a log of effects.",
		Guards: []resource.Guard{
			{Name: resource.GuardNone, Doc: "refuses nothing: only the client may compare values"},
			{
				Name: resource.GuardFence, Token: true,
				Doc: "the row keeps the last fencing token; reads and writes with a lower one find no row",
			},
			{
				Name: resource.GuardCASVersion, Conditional: true,
				Doc: "an optimistic lock: UPDATE ... WHERE version = what was read",
			},
			{
				Name: resource.GuardCondition, Conditional: true, Writes: workloads.Sales,
				Doc: "UPDATE ... WHERE sold + change <= stock",
			},
			{
				Name: resource.GuardUnique, Conditional: true, Writes: workloads.Seats,
				Doc: "INSERT of a row with the seat as its unique key",
			},
		},
		Specs: func() []node.Spec {
			return []node.Spec{postgres.Store(resource.StoreNode), resource.LedgerSpec(name)}
		},
		Dial: dial,
		Book: func() resource.Book { return &book{} },
	}
}

// schema is the empty store. The statement holds its row while the log's numbers and times are taken. So the lines of
// one lock are in the order in which its effects were applied.
const schema = `
CREATE TABLE IF NOT EXISTS cells (
	lock text PRIMARY KEY, value bigint NOT NULL DEFAULT 0, version bigint NOT NULL DEFAULT 1,
	last_fencing_token bigint NOT NULL DEFAULT 0, stock bigint
);
CREATE TABLE IF NOT EXISTS seats (seat text PRIMARY KEY, booking bigint NOT NULL);
CREATE TABLE IF NOT EXISTS effects (
	id bigserial PRIMARY KEY, at bigint NOT NULL, lock text NOT NULL, holder text NOT NULL, hold bigint NOT NULL, token bigint NOT NULL,
	write boolean NOT NULL, ok boolean NOT NULL, value bigint NOT NULL, version bigint NOT NULL
)`

// wallNS is the server's clock in ns.
const wallNS = `(extract(epoch FROM clock_timestamp()) * 1000000)::bigint * 1000`

// logged returns one statement for an access and its log line. done is a query that returns value and version of the
// access, or no row if the guard refuses. $1 is the lock, $2 the user, $3 the grant, $4 the token.
func logged(done string, write bool, otherwise string) string {
	return fmt.Sprintf(`WITH done AS (%s)
INSERT INTO effects (at, lock, holder, hold, token, write, ok, value, version)
SELECT %s, $1::text, $2::text, $3::bigint, $4::bigint, %v, d.n > 0, coalesce(d.value, %s), coalesce(d.version, 0)
FROM (SELECT count(*) AS n, max(value) AS value, max(version) AS version FROM done) d
RETURNING ok, value, version`, done, wallNS, write, otherwise)
}

// statements are a guard's statements for a read and a write. In a write $5 is the value. $6 is the version or the
// value that the write is based on, if the guard needs it.
var statements = map[string]struct{ read, write string }{
	resource.GuardNone: {plainRead, logged(`UPDATE cells SET value = $5, version = version + 1 WHERE lock = $1 RETURNING value, version`, true, "$5")},
	resource.GuardFence: {
		logged(`UPDATE cells SET last_fencing_token = $4 WHERE lock = $1 AND last_fencing_token <= $4 RETURNING value, version`, false, "0"),
		logged(`UPDATE cells SET value = $5, version = version + 1, last_fencing_token = $4
			WHERE lock = $1 AND last_fencing_token <= $4 RETURNING value, version`, true, "$5"),
	},
	resource.GuardCASVersion: {plainRead, logged(`UPDATE cells SET value = $5, version = version + 1
		WHERE lock = $1 AND version = $6::bigint RETURNING value, version`, true, "$5")},
	resource.GuardCondition: {plainRead, logged(`UPDATE cells SET value = value + ($5 - $6::bigint), version = version + 1
		WHERE lock = $1 AND value + ($5 - $6::bigint) <= stock RETURNING value, version`, true, "$5")},
	resource.GuardUnique: {
		logged(`SELECT coalesce((SELECT booking FROM seats WHERE seat = $1), 0) AS value, 1::bigint AS version`, false,
			"0"),
		logged(`INSERT INTO seats (seat, booking) VALUES ($1, $5) ON CONFLICT (seat) DO NOTHING RETURNING booking AS value, 2::bigint AS version`, true, "$5"),
	},
}

// plainRead locks the row during the statement, so that the log has the read at its place.
var plainRead = logged(`SELECT value, version FROM cells WHERE lock = $1 FOR UPDATE`, false, "0")

// link is a user's connection. It reconnects after an error of unknown outcome.
type link struct {
	target resource.Target
	conn   *pgx.Conn
	seen   resource.Sightings
}

func dial(ctx context.Context, t resource.Target) (resource.Connection, error) {
	l := &link{target: t, seen: resource.Sightings{}}
	return l, l.connect(ctx)
}

func (l *link) connect(ctx context.Context) (err error) {
	l.conn, err = connect(ctx, l.target.Address, l.target.Password)
	return err
}

func connect(ctx context.Context, address, password string) (*pgx.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("postgres: address %q: %w", address, err)
	}
	c, err := pgx.ParseConfig(fmt.Sprintf("host=%s port=%s user=lockquake dbname=postgres sslmode=disable", host, port))
	if err != nil {
		return nil, fmt.Errorf("postgres: %w", err)
	}
	c.Password = password
	conn, err := pgx.ConnectConfig(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("postgres: %w", err)
	}
	return conn, nil
}

// Read reads the value that a lock protects.
func (l *link) Read(ctx context.Context, a resource.Access) (int64, error) {
	got, err := l.do(ctx, a, statements[l.target.Guard].read, accessArgs(a))
	if err == nil {
		l.seen[a.Lock] = got
	}
	return got.Value, err
}

// Write writes that value.
func (l *link) Write(ctx context.Context, a resource.Access, value int64) error {
	args := append(accessArgs(a), value)
	from := l.seen.Of(a)
	switch l.target.Guard {
	case resource.GuardCASVersion:
		args = append(args, from.Version)
	case resource.GuardCondition:
		if from.Version == 0 {
			return fmt.Errorf("%w: this grant has read nothing, so its change is unknown",
				resource.ErrRefused)
		}
		args = append(args, from.Value)
	}
	got, err := l.do(ctx, a, statements[l.target.Guard].write, args)
	if err == nil {
		l.seen[a.Lock] = got
	}
	return err
}

func accessArgs(a resource.Access) []any {
	return []any{a.Lock, a.User.String(), int64(a.Grant), int64(a.Token)}
}

func (l *link) do(ctx context.Context, a resource.Access, sql string, args []any) (resource.Sighting, error) {
	if l.target.Guard == resource.GuardFence {
		if err := resource.LacksToken(a); err != nil {
			return resource.Sighting{}, err
		}
	}
	if l.conn == nil || l.conn.IsClosed() {
		if err := l.connect(ctx); err != nil {
			return resource.Sighting{}, fmt.Errorf("%w: %w", lock.ErrNotSent, err)
		}
	}
	var ok bool
	got := resource.Sighting{Grant: a.Grant}
	err := l.conn.QueryRow(ctx, sql, args...).Scan(&ok, &got.Value, &got.Version)
	var refused *pgconn.PgError
	switch {
	case errors.As(err, &refused): // the statement was rolled back
		return resource.Sighting{}, fmt.Errorf("%w: %w", resource.ErrRefused, err)
	case err != nil:
		_ = l.Close() // broken already
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return resource.Sighting{}, fmt.Errorf("postgres: %w", err)
	case !ok:
		return resource.Sighting{}, resource.StoreRefused(l.target.Guard, l.seen.Of(a).Version)
	}
	return got, nil
}

// Close closes the connection.
func (l *link) Close() error {
	if l.conn == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), resource.CloseWait)
	defer cancel()
	err := l.conn.Close(ctx)
	l.conn = nil
	return err
}

// book creates the tables and reads the log.
type book struct{ conn *pgx.Conn }

func (b *book) Open(ctx context.Context, s *wire.Start) (err error) {
	if _, ok := statements[s.Guard]; !ok {
		return fmt.Errorf("guard is %q: the store does not support it", s.Guard)
	}
	if b.conn == nil || b.conn.IsClosed() {
		if b.conn, err = connect(ctx, s.Resource.Address, s.Resource.Password); err != nil {
			return err
		}
	}
	if _, err := b.conn.Exec(ctx, schema); err != nil {
		return err
	}
	var stock *int64
	if n, ok := s.Terms[workloads.TermStock]; ok {
		stock = &n
	}
	_, err = b.conn.Exec(ctx, `INSERT INTO cells (lock, stock) SELECT unnest($1::text[]), $2::bigint ON CONFLICT DO NOTHING`, s.Locks, stock)
	return err
}

func (b *book) Now(ctx context.Context) (at int64, err error) {
	err = b.conn.QueryRow(ctx, "SELECT "+wallNS).Scan(&at)
	return at, err
}

func (b *book) Read(ctx context.Context) (log []resource.Entry, cells map[string]resource.Final, err error) {
	rows, err := b.conn.Query(ctx, `SELECT at, lock, holder, hold, token, write, ok, value FROM effects ORDER BY at, id`)
	if err != nil {
		return nil, nil, err
	}
	log, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (e resource.Entry, err error) {
		var grant, token int64
		err = row.Scan(&e.At, &e.Lock, &e.User, &grant, &token, &e.Write, &e.OK, &e.Value)
		e.Grant, e.Token = uint32(grant), uint64(token)
		return e, err
	})
	if err != nil {
		return nil, nil, err
	}
	cells = map[string]resource.Final{}
	rows, err = b.conn.Query(ctx, `SELECT lock, coalesce(booking, value), CASE WHEN booking IS NULL THEN version - 1 ELSE 1 END
		FROM cells LEFT JOIN seats ON seat = lock`)
	if err != nil {
		return nil, nil, err
	}
	var name string
	var f resource.Final
	_, err = pgx.ForEachRow(rows, []any{&name, &f.Value, &f.Applied},
		func() error { cells[strings.Clone(name)] = f; return nil })
	return log, cells, err
}

func (b *book) Close() {
	if b.conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), resource.CloseWait)
	defer cancel()
	_ = b.conn.Close(ctx) // the process ends
	b.conn = nil
}
