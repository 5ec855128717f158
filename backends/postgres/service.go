package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockquake/lockquake/backends/topology"
	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/internal/node"
)

// superuser is the supervisor's role.
const superuser = "lockquake"

// member is one server as the supervisor sees it: one connection, reopened when it breaks.
type member struct {
	name    string
	dial    func(ctx context.Context) (net.Conn, error)
	timeout time.Duration
	// of returns how to reach the server, once there are nodes.
	of func() target

	mu   sync.Mutex
	conn *pgx.Conn
}

// newMember returns a member. Before there are nodes it can only be asked for the names of its facts.
func newMember(nodes []node.Handle, c topology.Common, p LockParams) *member {
	return &member{
		name: serverName, timeout: p.Timeout,
		dial: func(ctx context.Context) (net.Conn, error) {
			if len(nodes) == 0 {
				return nil, errors.New("the server is not up")
			}
			return nodes[0].Dial(ctx, Port)
		},
		of: func() target {
			t := target{
				address: "postgres:5432", name: "the supervisor", login: node.Login{User: superuser},
				keys: keyspace(c.Prefix()), database: p.Database, timeout: p.Timeout,
			}
			if len(nodes) > 0 {
				t.login, t.address = nodes[0].Login(), nodes[0].Address(Port)
				t.login.User = cmp.Or(t.login.User, superuser)
			}
			return t
		},
	}
}

// ask runs statements on the supervisor's connection, within the timeout.
func (m *member) ask(ctx context.Context, f func(ctx context.Context, c *pgx.Conn) error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	ctx, done := context.WithTimeout(ctx, m.timeout)
	defer done()
	if m.conn == nil || m.conn.IsClosed() {
		c, err := m.connect(ctx)
		if err != nil {
			m.conn = nil
			return err
		}
		m.conn = c
	}
	return f(ctx, m.conn)
}

// connect opens a connection for the supervisor.
func (m *member) connect(ctx context.Context) (*pgx.Conn, error) {
	t := m.of()
	t.dial = func(ctx context.Context, _, _ string) (net.Conn, error) { return m.dial(ctx) }
	c, err := t.config(&link{})
	if err != nil {
		return nil, err
	}
	// the node resolves the name
	c.LookupFunc = func(_ context.Context, host string) ([]string, error) { return []string{host}, nil }
	conn, err := pgx.ConnectConfig(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", m.name, err)
	}
	return conn, nil
}

// one returns the one text that a query yields.
func (m *member) one(ctx context.Context, sql string, args ...any) (text string, err error) {
	err = m.ask(ctx, func(ctx context.Context, c *pgx.Conn) error { return c.QueryRow(ctx, sql, args...).Scan(&text) })
	return text, err
}

func (m *member) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.conn != nil {
		ctx, done := context.WithTimeout(context.Background(), grace)
		defer done()
		_ = m.conn.Close(ctx) // this side is closed in either case
	}
}

// service answers for the running server.
type service struct {
	common topology.Common
	keys   keyspace
	params Params
	ttl    time.Duration
	lock   string
	member *member
}

func newService(t setup, nodes []node.Handle) *service {
	s := &service{
		common: t.common, keys: keyspace(t.common.Prefix()), params: t.params, ttl: t.common.TTL, lock: t.common.Lock,
		member: newMember(nodes, t.common, t.params.LockParams),
	}
	if s.lock == "" {
		s.lock = leaseName
	}
	return s
}

// schema creates what the locks need. It runs with the first write, because a server that lost its data needs it
// again.
var schema = strings.Join([]string{
	`SET client_min_messages = warning`,
	readyTable,
	leaseTable,
	rowTable,
	`DO $$ BEGIN IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '` + clientRole + `') THEN 
		EXECUTE format('CREATE ROLE ` + clientRole + ` LOGIN PASSWORD %L', (SELECT rolpassword FROM pg_authid WHERE rolname = current_user)); END IF; END $$`, // the hash: no log shows a password
	`GRANT ALL ON lockquake_lease, lockquake_row TO ` + clientRole,
}, ";\n")

const readyTable = `CREATE TABLE IF NOT EXISTS lockquake_ready (one int PRIMARY KEY, at timestamptz)`

// needed returns what Ready creates: on external servers only a schema and its contents.
func (s *service) needed() string {
	if s.common.Attached == nil {
		return schema
	}
	return strings.Join([]string{
		`SET client_min_messages = warning`, `CREATE SCHEMA IF NOT EXISTS ` + s.keys.quoted(),
		readyTable, leaseTable, rowTable,
	}, ";\n")
}

// Ready creates what the locks need and is missing, and writes.
func (s *service) Ready(ctx context.Context) error {
	return s.member.ask(ctx, func(ctx context.Context, c *pgx.Conn) error {
		if _, err := c.Exec(ctx, s.needed()); err != nil {
			return fmt.Errorf("%s does not accept the tables: %w", s.member.name, err)
		}
		_, err := c.Exec(ctx, `INSERT INTO lockquake_ready VALUES (1, clock_timestamp())
			ON CONFLICT (one) DO UPDATE SET at = excluded.at`)
		if err != nil {
			return fmt.Errorf("%s accepts no write: %w", s.member.name, err)
		}
		return nil
	})
}

// Facts lists the facts. LOCK stands for the name of a lock.
func (s *service) Facts() map[string]string {
	return map[string]string{
		chaos.FactServes:     "the server answers a statement",
		chaos.FactRole:       "primary or standby, according to the server",
		"clock":              "the server's wall clock by clock_timestamp(), RFC 3339 with microseconds, UTC",
		"started":            "start time of the server's first process, by its own clock: it differs after each start",
		"lsn":                "the end of the server's log",
		chaos.FactSyncing:    "a process of the server waits for a sync of its log or its files (pg_stat_activity)",
		chaos.FactWrites:     "the server accepts a write to a table that no lock has; the query itself writes",
		"sessions":           "number of sessions of lock users",
		holderFact + "LOCK":  `owner of lock LOCK according to the server: the owner in the row (lease), the process id of the session (advisory, row), or "none"`,
		waitersFact + "LOCK": "number of sessions that wait for lock LOCK in the server (advisory, row)",
	}
}

// Ask asks the server for one fact.
func (s *service) Ask(ctx context.Context, node, fact string) (string, error) {
	if node != s.member.name {
		return "", fmt.Errorf("postgres has no node %q", node)
	}
	if fact == chaos.FactServes {
		if _, err := s.member.one(ctx, `SELECT 'true'`); err != nil {
			return "false", nil //nolint:nilerr // not answering is the answer
		}
		return "true", nil
	}
	if fact == chaos.FactWrites {
		err := s.Ready(ctx)
		return strconv.FormatBool(err == nil), err
	}
	q, err := s.question(fact)
	if err != nil {
		return "", err
	}
	v, err := s.member.one(ctx, q.sql, q.args...)
	if errors.Is(err, pgx.ErrNoRows) {
		return "none", nil
	}
	if err != nil {
		return "", fmt.Errorf("%s of %s: %w", fact, node, err)
	}
	return v, nil
}

// settings are the settings that Describe asks for.
var settings = []string{
	"server_version", "synchronous_commit", "fsync", "max_connections", "tcp_user_timeout", "tcp_keepalives_idle",
	"client_connection_check_interval", "idle_in_transaction_session_timeout",
}

// Describe returns the server's version and the settings that affect results.
func (s *service) Describe(ctx context.Context) map[string]string {
	out := map[string]string{
		"lock.timeout":     s.params.Timeout.String(),
		"lock.tcp-timeout": s.params.TCPTimeout.String(),
	}
	if s.lock == leaseName {
		out["lock.retry"], out["lock.ttl"] = s.params.Retry.String(), s.ttl.String()
	} else {
		out["lock.retry"] = "none: waiters wait in the server"
		out["lock.ttl"] = "none: the server promises no time"
	}
	for _, name := range settings {
		v, err := s.member.one(ctx, `SELECT current_setting($1)`, name)
		if err != nil {
			v = "unknown: " + err.Error()
		}
		if name == "server_version" {
			name = "version"
		}
		out["postgres."+name] = v
	}
	return out
}

// Close frees the connection.
func (s *service) Close() error {
	s.member.close()
	return nil
}
