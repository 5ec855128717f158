package zookeeper

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/lockquake/lockquake/backends/topology"
	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/node"
)

// Prefixes of the facts about one lock.
const (
	holderFact  = history.FactHolder
	waitersFact = "waiters:"
)

// service answers for the running ensemble. Each question has its own connection: the library would take up to a
// second to find a server again that had been away.
type service struct {
	common  topology.Common
	params  Params
	keys    keyspace
	ttl     time.Duration
	lock    string
	members []member
	// notified is the servers' count of watch events at the latest Reset.
	notified int64
	// made are the nodes above the root that did not exist, the deepest first.
	made []string
}

// Service returns the handle on the running servers.
func (t setup) Service(nodes []node.Handle) topology.Service {
	return &service{
		common: t.common, keys: keyspace(t.common.Prefix()), params: t.params, ttl: t.common.TTL, lock: t.common.Lock,
		members: t.members(nodes),
	}
}

// members returns the servers as the harness sees them.
func (t setup) members(nodes []node.Handle) []member {
	var out []member
	for _, n := range nodes {
		out = append(out, member{
			name: n.Name(), address: n.Address(Port), seat: ensembleSeat(n.Address), ttl: t.common.TTL,
			timeout: t.params.Timeout,
			keys:    keyspace(t.common.Prefix()), login: n.Login(),
			dial: func(ctx context.Context) (net.Conn, error) {
				conn, err := n.Dial(ctx, Port)
				if err != nil {
					return nil, err
				}
				return n.Login().TLS.Over(ctx, conn, n.Address(Port))
			},
		})
	}
	return out
}

// Facts lists the facts. LOCK stands for the name of a lock.
func (s *service) Facts() map[string]string {
	return map[string]string{
		chaos.FactServes:     "the server opens a session, which is a write through a quorum",
		"answers":            "the server answers the word ruok, with or without a quorum",
		chaos.FactRole:       "leader or follower, according to the server (srvr)",
		"leader":             `name of the server that calls itself leader, or "none"`,
		"epoch":              "the epoch of the server's last transaction: it changes with the first write after each election",
		chaos.FactSyncTime:   "the time that the server has spent in fsyncs of its log, in milliseconds (mntr, fsynctime)",
		chaos.FactWrites:     "the ensemble accepts a write through the server: it opens a session; the query itself writes",
		"zxid":               "the server's last transaction, hexadecimal",
		"sessions":           "the number of sessions of the server, including those of lockquake itself",
		"clock":              "the server's wall clock, from the start time of a new connection (cons), RFC 3339 with milliseconds, UTC",
		"monotonic":          "how long the server has been serving by its monotonic clock (mntr), in ns, and since which election of its process",
		holderFact + "LOCK":  `the id of the grant of the lowest contender of lock LOCK, by a read after a sync, or "none"`,
		waitersFact + "LOCK": "the number of contenders of lock LOCK behind the lowest; waiters of the lock single have no node and do not count",
	}
}

// Ask asks one server for one fact.
func (s *service) Ask(ctx context.Context, node, fact string) (string, error) {
	m, err := s.member(node)
	if err != nil {
		return "", err
	}
	ctx, done := context.WithTimeout(ctx, s.params.Timeout)
	defer done()
	if name, ok := strings.CutPrefix(fact, holderFact); ok {
		return m.holder(ctx, name)
	}
	if name, ok := strings.CutPrefix(fact, waitersFact); ok {
		return m.waiters(ctx, name)
	}
	switch fact {
	case chaos.FactSyncTime:
		n, err := m.metrics(ctx, "zk_sum_fsynctime")
		return strconv.FormatInt(n, 10), err
	case chaos.FactServes, chaos.FactWrites:
		err := m.visit(ctx, func(*session) error { return nil })
		return strconv.FormatBool(err == nil), nil
	case "answers":
		answer, err := m.word(ctx, "ruok")
		return strconv.FormatBool(err == nil && answer == "imok"), nil
	case "leader":
		return leaderOf(ctx, s.members), nil
	case "clock":
		return m.clock(ctx)
	case "monotonic":
		return m.monotonic(ctx)
	case "sessions":
		n, err := m.metrics(ctx, "zk_global_sessions")
		return strconv.FormatInt(n, 10), err
	case chaos.FactRole, "epoch", "zxid":
		st, err := m.state(ctx)
		if err != nil {
			return "", err
		}
		return map[string]string{
			chaos.FactRole: st.role, "epoch": strconv.FormatInt(st.zxid>>32, 10), "zxid": fmt.Sprintf("%#x", st.zxid),
		}[fact], nil
	}
	return "", fmt.Errorf("zookeeper has no fact %q", fact)
}

func (s *service) member(node string) (member, error) {
	for _, m := range s.members {
		if m.name == node {
			return m, nil
		}
	}
	return member{}, fmt.Errorf("zookeeper has no node %q", node)
}

// statesOf asks all servers at once; a server that does not answer or does not serve has no role.
func statesOf(ctx context.Context, members []member) []state {
	out := make([]state, len(members))
	var group sync.WaitGroup
	for i, m := range members {
		group.Go(func() { out[i], _ = m.state(ctx) })
	}
	group.Wait()
	return out
}

// leaderOf returns the name of the leader. A paused leader that comes back may claim to lead besides its successor:
// the later epoch counts.
func leaderOf(ctx context.Context, members []member) string {
	name, latest := "none", int64(-1)
	for i, st := range statesOf(ctx, members) {
		if st.role == "leader" && st.zxid>>32 > latest {
			name, latest = members[i].name, st.zxid>>32
		}
	}
	return name
}

// Ready checks that one server leads and all others follow, and that each takes a write through the quorum.
func (s *service) Ready(ctx context.Context) error {
	ctx, done := context.WithTimeout(ctx, s.params.Timeout)
	defer done()
	if s.common.Attached != nil {
		return makeRoots(ctx, s.members)
	}
	leaders := 0
	for i, st := range statesOf(ctx, s.members) {
		switch st.role {
		case "leader":
			leaders++
		case "follower":
		default:
			return fmt.Errorf("%s neither leads nor follows", s.members[i].name)
		}
	}
	if leaders != 1 {
		return fmt.Errorf("%d servers call themselves leader", leaders)
	}
	return makeRoots(ctx, s.members)
}

// makeRoots makes a write through the quorum at each server.
func makeRoots(ctx context.Context, members []member) error {
	return chaos.AtAll(members, func(m member) error {
		return m.visit(ctx,
			func(v *session) error { return m.makeRoot(ctx, v) })
	})
}

// Describe returns the versions of server and JVM, and the settings that affect results.
func (s *service) Describe(ctx context.Context) map[string]string {
	out := map[string]string{
		"zookeeper.servers":             strconv.Itoa(len(s.members)),
		"zookeeper.tick-time":           s.params.TickTime.String(),
		"zookeeper.sync-limit":          strconv.Itoa(s.params.SyncLimit) + " ticks",
		"zookeeper.min-session-timeout": s.params.MinSession.String(),
		"zookeeper.max-session-timeout": s.params.MaxSession.String(),
		"zookeeper.cnx-timeout":         s.params.CnxTimeout.String(),
		"zookeeper.fsync":               strconv.FormatBool(!s.params.NoFsync),
		"lock.retry":                    waiting[s.lock],
		"lock.timeout":                  s.params.Timeout.String(),
		"lock.ttl":                      s.ttl.String(),
		"lock.validity-lag":             s.params.Lag.String(),
	}
	for _, m := range s.members {
		ctx, done := context.WithTimeout(ctx, s.params.Timeout)
		m.describe(ctx, out)
		done()
	}
	s.common.Drop(out, "zookeeper.min-session-timeout", "zookeeper.max-session-timeout", "zookeeper.cnx-timeout",
		"zookeeper.fsync", "zookeeper.jvm")
	if n, ok := s.notifications(ctx); ok {
		out["zookeeper.notifications"] = strconv.FormatInt(n-s.notified, 10)
	}
	return out
}

// Requests counts the packets that each server has received from clients: requests, pings of sessions, and questions
// such as this one. Packets between servers do not count.
func (s *service) Requests(ctx context.Context) map[string]int64 {
	ctx, done := context.WithTimeout(ctx, s.params.Timeout)
	defer done()
	return topology.CountEach(s.members, func(m member) string { return m.name }, func(m member) (int64, error) {
		return m.metrics(ctx, "zk_packets_received")
	})
}

// Syncs returns how long the servers waited for their logs to be on disk. A server counts whole milliseconds per
// sync, so this is too little by up to 1 ms per sync, and 0 on a fast disk.
func (s *service) Syncs(ctx context.Context) map[string]topology.Syncs {
	ctx, done := context.WithTimeout(ctx, s.params.Timeout)
	defer done()
	return topology.CountEach(s.members, func(m member) string { return m.name },
		func(m member) (topology.Syncs, error) {
			return m.syncs(ctx)
		})
}

// waiting says how each lock waits.
var waiting = map[string]string{
	"sequential": "none: each waiter watches the previous node",
	"herd":       "none: every waiter watches all nodes, and checks again after each change",
	"single":     "none: every waiter watches the one node, and retries when it is gone",
	"zk-lock":    "none: each waiter watches the previous node; the library retries after a lost reply",
}

// Stored asks the servers; the first that answers does so with a read after all writes.
func (s *service) Stored(ctx context.Context, name string) (topology.Stored, error) {
	return topology.StoredBy(ctx, s.members, func(ctx context.Context, m member) (string,
		error,
	) {
		return s.Ask(ctx, m.name, holderFact+name)
	})
}

// Close does nothing: no connection outlives its question.
func (s *service) Close() error { return nil }
