package etcd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/version"

	"github.com/lockquake/lockquake/backends/topology"
	"github.com/lockquake/lockquake/internal/node"
)

// service answers for the running cluster.
type service struct {
	common  topology.Common
	params  Params
	keys    keyspace
	ttl     time.Duration
	lock    string
	nodes   int
	records records
	members []member
	broken  error // why a member's client could not be made
}

// Service returns the handle on the running members.
func (t setup) Service(nodes []node.Handle) topology.Service { return newService(t, places(nodes)) }

// places returns how the harness reaches the servers.
func places(nodes []node.Handle) []place {
	out := make([]place, 0, len(nodes))
	for _, n := range nodes {
		out = append(out, place{
			name: n.Name(), addr: n.Address(Port), login: n.Login(),
			dial: func(ctx context.Context) (net.Conn, error) { return n.Dial(ctx, Port) },
		})
	}
	return out
}

func newService(t setup, places []place) *service {
	s := &service{
		common: t.common, keys: keyspace(t.common.Prefix()), params: t.params, ttl: t.common.TTL,
		lock: t.common.Lock, nodes: t.common.Nodes, records: recordsOf(t.common.Lock),
	}
	for _, p := range places {
		m, err := newMember(p)
		if err != nil {
			s.broken = errors.Join(s.broken, err)
			continue
		}
		s.members = append(s.members, m)
	}
	return s
}

// Ready writes through the quorum at every member, and checks that each knows its leader.
func (s *service) Ready(ctx context.Context) error {
	if s.broken != nil {
		return s.broken
	}
	ctx, done := context.WithTimeout(ctx, s.params.Timeout)
	defer done()
	for _, m := range s.members {
		if _, err := m.client.Put(ctx, s.keys.ready(), m.name); err != nil {
			return fmt.Errorf("%s accepts no write: %w", m.name, err)
		}
		st, err := m.client.Status(ctx, m.addr)
		if err != nil {
			return fmt.Errorf("%s does not report its status: %w", m.name, err)
		}
		if s.params.Version == version3_4 && !strings.HasPrefix(st.Version, string(version3_4)+".") {
			return fmt.Errorf("%s is etcd %s, not %s: PATH or the image has another one than Debian's", m.name, st.Version, version3_4)
		}
		if st.Leader == 0 {
			return fmt.Errorf("%s knows no leader", m.name)
		}
	}
	return nil
}

// Describe returns the server's version and the settings that affect results, including the TTL that a lease really
// gets.
func (s *service) Describe(ctx context.Context) map[string]string {
	out := map[string]string{
		"etcd.members":   strconv.Itoa(len(s.members)),
		"etcd.heartbeat": s.params.Heartbeat.String(),
		"etcd.election":  s.params.Election.String(),
		"etcd.fsync":     strconv.FormatBool(!s.params.NoFsync),
		"etcd.server":    s.params.server(),
		"lock.retry":     "none: " + s.records.waits,
		"lock.recipe":    s.records.recipe,
		"lock.library":   "go.etcd.io/etcd/client/v3 " + version.Version,
		"lock.reconnect": fmt.Sprintf("after %s, later after at most %s", reconnect.Backoff.BaseDelay,
			reconnect.Backoff.MaxDelay),
		"lock.timeout": s.params.Timeout.String(),
		"lock.ttl":     s.ttl.String(),
	}
	if s.params.Pinned {
		out["lock.endpoints"] = "one: client i talks to member i only"
	}
	if s.lock == "chubby" {
		out["lock.lock-delay"] = s.params.LockDelay.String()
	}
	for _, m := range s.members {
		if st, err := m.client.Status(ctx, m.addr); err == nil {
			out["etcd.version"] = st.Version
		}
		g, err := m.client.Grant(ctx, int64(s.ttl/time.Second))
		if err != nil {
			continue
		}
		out["etcd.ttl-granted"] = (time.Duration(g.TTL) * time.Second).String()
		_, _ = m.client.Revoke(ctx, g.ID) // if that fails, it expires by itself
		break
	}
	s.common.Drop(out, "etcd.heartbeat", "etcd.election", "etcd.fsync", "etcd.server")
	return out
}

// Requests counts all client messages to each member, including questions such as this one, but not the messages
// between members.
func (s *service) Requests(ctx context.Context) map[string]int64 {
	ctx, done := context.WithTimeout(ctx, s.params.Timeout)
	defer done()
	return topology.CountEach(s.members, func(m member) string { return m.name }, func(m member) (int64, error) {
		return m.requests(ctx)
	})
}

// Syncs returns how long the members waited for their write-ahead logs to be on disk.
func (s *service) Syncs(ctx context.Context) map[string]topology.Syncs {
	ctx, done := context.WithTimeout(ctx, s.params.Timeout)
	defer done()
	const name = "etcd_disk_wal_fsync_duration_seconds"
	return topology.CountEach(s.members, func(m member) string { return m.name },
		func(m member) (topology.Syncs, error) {
			n, err := m.metric(ctx, name+"_count")
			if err != nil {
				return topology.Syncs{}, err
			}
			sum, err := m.metric(ctx, name+"_sum")
			return topology.Syncs{N: int64(n), Took: time.Duration(sum * 1e9)}, err
		})
}

// Close frees the connections.
func (s *service) Close() error {
	var errs []error
	for _, m := range s.members {
		m.web.CloseIdleConnections()
		errs = append(errs, m.client.Close())
	}
	return errors.Join(errs...)
}
