package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockquake/lockquake/backends/topology"
	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/history"
)

// Prefixes of the facts that name a lock.
const (
	holderFact  = history.FactHolder
	waitersFact = "waiters:"
)

// question is the query that answers a fact.
type question struct {
	sql  string
	args []any
}

var plainQuestions = map[string]string{
	chaos.FactRole:    `SELECT CASE WHEN pg_is_in_recovery() THEN 'standby' ELSE 'primary' END`,
	"clock":           `SELECT to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')`,
	"started":         `SELECT to_char(pg_postmaster_start_time() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')`,
	"lsn":             `SELECT pg_current_wal_lsn()::text`,
	chaos.FactSyncing: `SELECT (count(*) > 0)::text FROM pg_stat_activity WHERE wait_event LIKE '%Sync'`,
}

// holders asks for a lock's holder. A row locked by a transaction has that transaction's number in xmax, and every
// transaction holds a lock on its own number. An xmax that remains afterwards belongs to no one.
var holders = map[string]string{
	leaseName: `SELECT owner FROM lockquake_lease WHERE name = $1 AND expires > clock_timestamp()`,
	rowName: `SELECT l.pid::text FROM lockquake_row r JOIN pg_locks l
		ON l.locktype = 'transactionid' AND l.transactionid = r.xmax AND l.granted WHERE r.name = $1`,
}

// waiters asks for the number of waiting sessions. The first to wait for a row waits for its holder's transaction,
// the others for the row.
var waiters = map[string]string{
	rowName: `SELECT count(DISTINCT l.pid)::text FROM lockquake_row r JOIN pg_locks l ON NOT l.granted AND (
		l.locktype = 'transactionid' AND l.transactionid = r.xmax OR
		l.locktype = 'tuple' AND l.relation = 'lockquake_row'::regclass AND format('(%s,%s)', l.page, l.tuple)::tid = r.ctid)
		WHERE r.name = $1`,
}

// sessionPrefix returns the prefix of the session names of this service's lock users. On external servers those are
// only this run's users.
func (s *service) sessionPrefix() string {
	if s.common.Attached != nil {
		return sessionPrefix + s.common.Attached.Run + " "
	}
	return sessionPrefix
}

// question returns the query for a fact.
func (s *service) question(fact string) (question, error) {
	if name, ok := strings.CutPrefix(fact, holderFact); ok {
		if s.lock == advisoryName {
			return question{
				sql:  `SELECT pid::text FROM pg_locks WHERE granted AND ` + s.keys.entry(),
				args: []any{name},
			}, nil
		}
		return question{sql: holders[s.lock], args: []any{name}}, nil
	}
	if name, ok := strings.CutPrefix(fact, waitersFact); ok {
		if s.lock == advisoryName {
			return question{
				sql:  `SELECT count(*)::text FROM pg_locks WHERE NOT granted AND ` + s.keys.entry(),
				args: []any{name},
			}, nil
		}
		if sql := waiters[s.lock]; sql != "" {
			return question{sql: sql, args: []any{name}}, nil
		}
		return question{}, fmt.Errorf("the server does not know the waiters of lock %s: its users poll", s.lock)
	}
	if fact == "sessions" {
		return question{
			sql:  `SELECT count(*)::text FROM pg_stat_activity WHERE starts_with(application_name, $1)`,
			args: []any{s.sessionPrefix()},
		}, nil
	}
	if sql := plainQuestions[fact]; sql != "" {
		return question{sql: sql}, nil
	}
	return question{}, fmt.Errorf("postgres has no fact %q", fact)
}

// sessions is the service of a lock whose grants last as long as a session.
type sessions struct {
	*service
	watch *member // so that other questions do not hold up this one
}

// Sessions lists the sessions of lock users.
//
// A session that ends frees its locks first and leaves the list later. So it counts as alive only while it is seen
// waiting, for its client's next command or for a lock: it stops waiting before it begins to end.
func (s *sessions) Sessions(ctx context.Context) ([]topology.Session, error) {
	var list []topology.Session
	err := s.watch.ask(ctx, func(ctx context.Context, c *pgx.Conn) error {
		rows, err := c.Query(ctx, `SELECT pid || '@' || extract(epoch FROM backend_start), application_name,
			coalesce(wait_event = 'ClientRead' OR wait_event_type = 'Lock', false)
			FROM pg_stat_activity WHERE starts_with(application_name, $1)`, s.sessionPrefix())
		if err != nil {
			return err
		}
		list, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (x topology.Session, err error) {
			var name string
			if err := row.Scan(&x.ID, &name, &x.Stands); err != nil {
				return x, err
			}
			user, ok := sessionUser(name)
			if !ok {
				return x, fmt.Errorf("session name %q", name)
			}
			x.User = user
			return x, nil
		})
		return err
	})
	return list, err
}

// Close frees both connections.
func (s *sessions) Close() error {
	s.watch.close()
	return s.service.Close()
}

// Stored asks the server. For lock lease, the row also says when the lease ends.
func (s *service) Stored(ctx context.Context, name string) (topology.Stored, error) {
	if s.lock != leaseName {
		holder, err := s.Ask(ctx, s.member.name, holderFact+name)
		return topology.Stored{Holder: holder}, err
	}
	out := topology.Stored{Holder: "none"}
	err := s.member.ask(ctx, func(ctx context.Context, c *pgx.Conn) error {
		var micros int64
		err := c.QueryRow(ctx, `SELECT owner, (extract(epoch FROM expires - clock_timestamp()) * 1000000)::bigint FROM lockquake_lease
			WHERE name = $1 AND expires > clock_timestamp()`, name).Scan(&out.Holder, &micros)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		left := time.Duration(micros) * time.Microsecond
		out.EndsIn = &left
		return err
	})
	return out, err
}

// Requests counts the transactions that have ended in all databases, including questions such as this one. Each
// statement of a lock is one, except for row, which holds one open. The server counts a session's work about a second
// later.
func (s *service) Requests(ctx context.Context) map[string]int64 {
	return s.count(ctx, "xact_commit + xact_rollback")
}

// Connections returns the number of sessions that the server has begun.
func (s *service) Connections(ctx context.Context) map[string]int64 { return s.count(ctx, "sessions") }

// count sums a statistic over all databases.
func (s *service) count(ctx context.Context, what string) map[string]int64 {
	return topology.CountEach([]*member{s.member}, func(m *member) string { return m.name },
		func(m *member) (n int64, err error) {
			err = m.ask(ctx, func(ctx context.Context, c *pgx.Conn) error {
				return c.QueryRow(ctx, `SELECT sum(`+what+`)::bigint FROM pg_stat_database`).Scan(&n)
			})
			return n, err
		})
}

// Syncs returns how long the server waited for its log to be on disk. It is unknown if track_wal_io_timing is off,
// which is the default. It is also unknown from version 18 on, whose pg_stat_wal has no such columns.
func (s *service) Syncs(ctx context.Context) map[string]topology.Syncs {
	return topology.CountEach([]*member{s.member}, func(m *member) string { return m.name },
		func(m *member) (x topology.Syncs, err error) {
			err = m.ask(ctx, func(ctx context.Context, c *pgx.Conn) error {
				return c.QueryRow(ctx, `SELECT wal_sync, (wal_sync_time * 1000000)::bigint FROM pg_stat_wal`).Scan(&x.N,
					&x.Took)
			})
			return x, err
		})
}
