package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lockquake/lockquake/backends/topology"
	"github.com/lockquake/lockquake/internal/node"
)

var _ topology.Identified = setup{}

// seenSession is what a connection says about its session.
type seenSession struct {
	pid     int
	path    string // search_path
	schema  string // in which it creates tables; "": no schema of the path exists
	name    string // application_name
	started string // when the server started, which is unique to the server
}

// Identify opens two connections at a time and asks both twice, in turns. Each must keep one server process that no
// other connection has, and the settings that it began with. A pooler in transaction mode gives both the same
// process. One in session mode may drop the settings, and then tables would be created outside the prefix.
func (t setup) Identify(ctx context.Context, endpoints []node.Handle) ([]topology.Met, error) {
	p := t.params.LockParams
	p.Timeout = max(p.Timeout, firstConnect) // no hurry yet
	m := newMember(endpoints, t.common, p)
	asked := m.of()
	met := topology.Met{Address: asked.address, Alone: true}
	for range topology.Meetings / 2 {
		seen, err := m.pair(ctx)
		if err != nil {
			return nil, err
		}
		if how := asked.odd(seen); how != "" {
			return nil, topology.NotItself(asked.address, how)
		}
		for _, v := range seen {
			if id := "up since " + v.started; !slices.Contains(met.Servers, id) {
				met.Servers = append(met.Servers, id)
			}
		}
	}
	return []topology.Met{met}, nil
}

// pair asks two connections in turns: first, second, first, second.
func (m *member) pair(ctx context.Context) (seen []seenSession, err error) {
	ctx, done := context.WithTimeout(ctx, m.timeout)
	defer done()
	conns := make([]*pgx.Conn, 2)
	for i := range conns {
		if conns[i], err = m.connect(ctx); err != nil {
			return nil, asPooler(m.of().address, err)
		}
		defer func() { _ = conns[i].Close(context.WithoutCancel(ctx)) }()
	}
	for i := range 2 * len(conns) {
		v := seenSession{}
		// In one message, because a pooler may not know a prepared statement.
		err := conns[i%len(conns)].QueryRow(ctx, `SELECT pg_backend_pid(), current_setting('search_path'), coalesce(current_schema(), ''),
			current_setting('application_name'), pg_postmaster_start_time()::text`, pgx.QueryExecModeSimpleProtocol).
			Scan(&v.pid, &v.path, &v.schema, &v.name, &v.started)
		if err != nil {
			return nil, fmt.Errorf("%s does not describe its session: %w", m.name, err)
		}
		seen = append(seen, v)
	}
	return seen, nil
}

// odd says how the sessions differ from the requested ones; "": they do not. seen are the answers of two connections
// in turns.
func (t target) odd(seen []seenSession) string {
	for i, v := range seen {
		switch {
		case i >= 2 && v.pid != seen[i-2].pid:
			return fmt.Sprintf("two statements of one connection came to different sessions (pg_backend_pid() is %d, and then %d)", seen[i-2].pid, v.pid)
		case i%2 == 1 && v.pid == seen[i-1].pid && v.started == seen[i-1].started:
			return fmt.Sprintf("two connections have one session (pg_backend_pid() is %d on both)", v.pid)
		}
	}
	for _, v := range seen {
		switch {
		case t.keys != "" && (v.path != t.keys.quoted() || v.schema != "" && v.schema != t.keys.schema()):
			return fmt.Sprintf("the session's search_path is %s, but %s was requested (current_schema() is %q)",
				v.path, t.keys.quoted(), v.schema)
		case v.name != t.name:
			return fmt.Sprintf("the session's application_name is %q, but %q was requested", v.name, t.name)
		}
	}
	return ""
}

// asPooler turns a connect error into ErrNotItself if a pooler answered: no server rejects the startup parameters
// used here.
func asPooler(address string, err error) error {
	var answer *pgconn.PgError
	if errors.As(err, &answer) && strings.Contains(answer.Message, "unsupported startup parameter") {
		return topology.NotItself(address, answer.Message)
	}
	return err
}
