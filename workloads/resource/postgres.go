package resource

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lockquake/lockquake/backends/postgres"
	"github.com/lockquake/lockquake/internal/cluster"
	"github.com/lockquake/lockquake/internal/wire"
	"github.com/lockquake/lockquake/lock"
	"github.com/lockquake/lockquake/workloads"
)

// Guards that a real database adds.
const (
	// GuardCondition makes a write the change that its user meant (what it writes less what it has read), applied to what
	// stands there if the stock allows: UPDATE ... WHERE sold + change <= stock.
	GuardCondition = "condition"
	// GuardUnique makes a write the insertion of a row whose key is the seat: the second one is refused.
	GuardUnique = "unique"
)

const postgresName = "postgres"

// postgresStore is a PostgreSQL server with a row for each lock.
var postgresStore = Kind{
	Name: postgresName,
	Doc:  "A PostgreSQL server: a row for each lock, with a last fencing token, a version and a stock; seats with a unique key; and a log of effects.",
	Guards: []Guard{
		{Name: GuardNone, Doc: "refuses nothing: what was read is compared by the client, if at all"},
		{Name: GuardFence, Token: true, Doc: "the row keeps the last fencing token; reads and writes with a lower one find no row"},
		{Name: GuardCASVersion, Doc: "an optimistic lock: UPDATE ... WHERE version = what was read"},
		{Name: GuardCondition, Writes: workloads.Sales, Doc: "UPDATE ... WHERE sold + change <= stock"},
		{Name: GuardUnique, Writes: workloads.Seats, Doc: "INSERT of a row with the seat as its unique key"},
	},
	Specs: func() []cluster.Spec {
		return []cluster.Spec{postgres.Store(storeNode), ledgerSpec(postgresName)}
	},
	Dial: dialPostgres,
	book: func() book { return &postgresBook{} },
}

// ledgerSpec is the process beside a store.
func ledgerSpec(kind string) cluster.Spec {
	return cluster.Spec{
		Name: ledgerNode, Role: cluster.Resource, Image: cluster.SelfProgram, Stdio: true,
		Command: func(cluster.Place) []string { return []string{cluster.SelfProgram, ledgerNode, kind} },
	}
}

// schema is the empty store. The log's numbers are drawn, and its times taken, while the statement has its row: for one
// lock they are in the order in which effects were applied.
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

// logged makes one statement of an access and of its line in the log. done is a query that returns value and version of what
// it read or wrote, or no row where the guard refuses. $1 is the lock, $2 the user, $3 the grant, $4 the token.
func logged(done string, write bool, otherwise string) string {
	return fmt.Sprintf(`WITH done AS (%s)
INSERT INTO effects (at, lock, holder, hold, token, write, ok, value, version)
SELECT %s, $1::text, $2::text, $3::bigint, $4::bigint, %v, d.n > 0, coalesce(d.value, %s), coalesce(d.version, 0)
FROM (SELECT count(*) AS n, max(value) AS value, max(version) AS version FROM done) d
RETURNING ok, value, version`, done, wallNS, write, otherwise)
}

// statements are what a guard makes of a read and of a write. In a write $5 is the value; $6 is what it was made from: the
// version or the value, where the guard wants either.
var statements = map[string]struct{ read, write string }{
	GuardNone: {plainRead, logged(`UPDATE cells SET value = $5, version = version + 1 WHERE lock = $1 RETURNING value, version`, true, "$5")},
	GuardFence: {
		logged(`UPDATE cells SET last_fencing_token = $4 WHERE lock = $1 AND last_fencing_token <= $4 RETURNING value, version`, false, "0"),
		logged(`UPDATE cells SET value = $5, version = version + 1, last_fencing_token = $4
			WHERE lock = $1 AND last_fencing_token <= $4 RETURNING value, version`, true, "$5"),
	},
	GuardCASVersion: {plainRead, logged(`UPDATE cells SET value = $5, version = version + 1
		WHERE lock = $1 AND version = $6::bigint RETURNING value, version`, true, "$5")},
	GuardCondition: {plainRead, logged(`UPDATE cells SET value = value + ($5 - $6::bigint), version = version + 1
		WHERE lock = $1 AND value + ($5 - $6::bigint) <= stock RETURNING value, version`, true, "$5")},
	GuardUnique: {
		logged(`SELECT coalesce((SELECT booking FROM seats WHERE seat = $1), 0) AS value, 1::bigint AS version`, false, "0"),
		logged(`INSERT INTO seats (seat, booking) VALUES ($1, $5) ON CONFLICT (seat) DO NOTHING RETURNING booking AS value, 2::bigint AS version`, true, "$5"),
	},
}

// plainRead takes the row for the moment of the statement, so that the log has it in its place.
var plainRead = logged(`SELECT value, version FROM cells WHERE lock = $1 FOR UPDATE`, false, "0")

// pgLink is a user's connection. After an error of unknown outcome it connects anew.
type pgLink struct {
	target Target
	conn   *pgx.Conn
	seen   sightings
}

func dialPostgres(ctx context.Context, t Target) (Connection, error) {
	l := &pgLink{target: t, seen: sightings{}}
	return l, l.connect(ctx)
}

func (l *pgLink) connect(ctx context.Context) (err error) {
	l.conn, err = pgConnect(ctx, l.target.Address)
	return err
}

func pgConnect(ctx context.Context, address string) (*pgx.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("postgres: address %q: %w", address, err)
	}
	conn, err := pgx.Connect(ctx, fmt.Sprintf("host=%s port=%s user=lockquake dbname=postgres sslmode=disable", host, port))
	if err != nil {
		return nil, fmt.Errorf("postgres: %w", err)
	}
	return conn, nil
}

// Read reads the value that a lock protects.
func (l *pgLink) Read(ctx context.Context, a Access) (int64, error) {
	got, err := l.do(ctx, a, statements[l.target.Guard].read, accessArgs(a))
	if err == nil {
		l.seen[a.Lock] = got
	}
	return got.value, err
}

// Write writes it.
func (l *pgLink) Write(ctx context.Context, a Access, value int64) error {
	args := append(accessArgs(a), value)
	from := l.seen.of(a)
	switch l.target.Guard {
	case GuardCASVersion:
		args = append(args, from.version)
	case GuardCondition:
		if from.version == 0 {
			return fmt.Errorf("%w: this grant has read nothing, so nobody knows what change it means", ErrRefused)
		}
		args = append(args, from.value)
	}
	got, err := l.do(ctx, a, statements[l.target.Guard].write, args)
	if err == nil {
		l.seen[a.Lock] = got
	}
	return err
}

func accessArgs(a Access) []any {
	return []any{a.Lock, a.User.String(), int64(a.Grant), int64(a.Token)}
}

func (l *pgLink) do(ctx context.Context, a Access, sql string, args []any) (sighting, error) {
	if l.target.Guard == GuardFence {
		if err := lacksToken(a); err != nil {
			return sighting{}, err
		}
	}
	if l.conn == nil || l.conn.IsClosed() {
		if err := l.connect(ctx); err != nil {
			return sighting{}, fmt.Errorf("%w: %w", lock.ErrNotSent, err)
		}
	}
	var ok bool
	got := sighting{grant: a.Grant}
	err := l.conn.QueryRow(ctx, sql, args...).Scan(&ok, &got.value, &got.version)
	var refused *pgconn.PgError
	switch {
	case errors.As(err, &refused): // the statement was undone
		return sighting{}, fmt.Errorf("%w: %w", ErrRefused, err)
	case err != nil:
		_ = l.Close() // broken already
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return sighting{}, fmt.Errorf("postgres: %w", err)
	case !ok:
		return sighting{}, fmt.Errorf("%w: no row satisfied %s", ErrFenced, l.target.Guard)
	}
	return got, nil
}

// Close closes the connection.
func (l *pgLink) Close() error {
	if l.conn == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeWait)
	defer cancel()
	err := l.conn.Close(ctx)
	l.conn = nil
	return err
}

// postgresBook lays out the tables and reads the log.
type postgresBook struct{ conn *pgx.Conn }

func (b *postgresBook) open(ctx context.Context, s *wire.Start) (err error) {
	if _, ok := statements[s.Guard]; !ok {
		return fmt.Errorf("guard is %q: the store does not know it", s.Guard)
	}
	if b.conn == nil || b.conn.IsClosed() {
		if b.conn, err = pgConnect(ctx, s.Resource.Address); err != nil {
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

func (b *postgresBook) now(ctx context.Context) (at int64, err error) {
	err = b.conn.QueryRow(ctx, "SELECT "+wallNS).Scan(&at)
	return at, err
}

func (b *postgresBook) read(ctx context.Context) (log []entry, cells map[string]final, err error) {
	rows, err := b.conn.Query(ctx, `SELECT at, lock, holder, hold, token, write, ok, value FROM effects ORDER BY at, id`)
	if err != nil {
		return nil, nil, err
	}
	log, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (e entry, err error) {
		var grant, token int64
		err = row.Scan(&e.at, &e.lock, &e.user, &grant, &token, &e.write, &e.ok, &e.value)
		e.grant, e.token = uint32(grant), uint64(token)
		return e, err
	})
	if err != nil {
		return nil, nil, err
	}
	cells = map[string]final{}
	rows, err = b.conn.Query(ctx, `SELECT lock, coalesce(booking, value), CASE WHEN booking IS NULL THEN version - 1 ELSE 1 END
		FROM cells LEFT JOIN seats ON seat = lock`)
	if err != nil {
		return nil, nil, err
	}
	var name string
	var f final
	_, err = pgx.ForEachRow(rows, []any{&name, &f.value, &f.applied}, func() error { cells[strings.Clone(name)] = f; return nil })
	return log, cells, err
}

func (b *postgresBook) close() {
	if b.conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeWait)
	defer cancel()
	_ = b.conn.Close(ctx) // the process ends
	b.conn = nil
}
