package etcd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/internal/cluster"
)

// readyKey is written by Ready; no lock has a name like it.
const readyKey = "lockquake-ready"

// holderFact asks for the key at the head of a lock's queue.
const holderFact = "holder:"

// member is one server as the harness sees it: a client that talks to it alone.
type member struct {
	name   string
	addr   string
	client *clientv3.Client
	web    *http.Client
}

// place tells how the harness reaches one server.
type place struct {
	name string
	addr string
	dial func(ctx context.Context) (net.Conn, error)
}

func newMember(p place) (member, error) {
	c, err := clientv3.New(clientv3.Config{
		Endpoints: []string{p.addr},
		Logger:    zap.NewNop(),
		// The harness asks again by itself; a failed call must come back at once, not after the library's retries.
		MaxUnaryRetries: 1,
		DialOptions: []grpc.DialOption{
			// gRPC's own back-off grows to two minutes: a member that came back would look away.
			grpc.WithConnectParams(grpc.ConnectParams{
				Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.5, MaxDelay: 250 * time.Millisecond},
				MinConnectTimeout: time.Second,
			}),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return p.dial(ctx) }),
		},
	})
	if err != nil {
		return member{}, fmt.Errorf("etcd client for %s: %w", p.name, err)
	}
	web := &http.Client{Transport: &http.Transport{
		DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return p.dial(ctx) },
		DisableKeepAlives: true,
	}}
	return member{name: p.name, addr: p.addr, client: c, web: web}, nil
}

// service answers for the running cluster.
type service struct {
	params  Params
	ttl     time.Duration
	members []member
	broken  error // what kept a member's client from being made
}

// Service returns the handle on the running members.
func (t topology) Service(nodes []*cluster.Node) backends.Service {
	places := make([]place, 0, len(nodes))
	for _, n := range nodes {
		places = append(places, place{
			name: n.Name(), addr: n.Address(Port),
			dial: func(ctx context.Context) (net.Conn, error) { return n.Dial(ctx, Port) },
		})
	}
	return newService(t, places)
}

func newService(t topology, places []place) *service {
	s := &service{params: t.params, ttl: t.common.TTL}
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

// Facts lists what can be asked. LOCK stands for the name of a lock.
func (s *service) Facts() map[string]string {
	return map[string]string{
		chaos.FactServes:    "the member answers a linearizable read, for which it needs a quorum",
		"answers":           "the member answers by itself, with or without a quorum",
		"role":              "leader or follower, by the member's own account",
		"leader":            `name of the member that this one takes for the leader, or "none"`,
		"clock":             "the member's wall clock by the Date header of its HTTP endpoint, RFC 3339, UTC, whole seconds",
		"revision":          "the member's latest revision",
		holderFact + "LOCK": `the id of the grant at the head of lock LOCK's queue, by a linearizable read, or "none"`,
	}
}

// Ask asks one member for one fact.
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
	switch fact {
	case chaos.FactServes:
		_, err := m.client.Get(ctx, readyKey)
		return strconv.FormatBool(err == nil), nil
	case "answers":
		_, err := m.client.Status(ctx, m.addr)
		return strconv.FormatBool(err == nil), nil
	case "clock":
		return m.clock(ctx)
	case "role", "leader", "revision":
		return s.status(ctx, m, fact)
	}
	return "", fmt.Errorf("etcd has no fact %q", fact)
}

func (s *service) member(node string) (member, error) {
	for _, m := range s.members {
		if m.name == node {
			return m, nil
		}
	}
	return member{}, fmt.Errorf("etcd has no node %q", node)
}

// status answers from the member's own status.
func (s *service) status(ctx context.Context, m member, fact string) (string, error) {
	st, err := m.client.Status(ctx, m.addr)
	if err != nil {
		return "", fmt.Errorf("status of %s: %w", m.name, err)
	}
	switch {
	case fact == "revision":
		return strconv.FormatInt(st.Header.Revision, 10), nil
	case fact == "role" && st.Leader == st.Header.MemberId:
		return "leader", nil
	case fact == "role":
		return "follower", nil
	case st.Leader == 0:
		return "none", nil
	}
	return s.nameOf(ctx, st.Leader)
}

// nameOf finds the member with that id: whoever answers says who it is, so no quorum is needed.
func (s *service) nameOf(ctx context.Context, id uint64) (string, error) {
	for _, m := range s.members {
		bounded, done := context.WithTimeout(ctx, s.params.Timeout/time.Duration(len(s.members)+1))
		list, err := m.client.MemberList(bounded, clientv3.WithSerializable())
		done()
		if err != nil {
			continue
		}
		for _, known := range list.Members {
			if known.ID == id {
				return known.Name, nil
			}
		}
	}
	return "", fmt.Errorf("no member that answers knows member %x", id)
}

// holder reads the head of a lock's queue.
func (m member) holder(ctx context.Context, lockName string) (string, error) {
	resp, err := m.client.Get(ctx, prefix(lockName)+"/", clientv3.WithFirstCreate()...)
	if err != nil {
		return "", fmt.Errorf("queue of %s: %w", lockName, err)
	}
	if len(resp.Kvs) == 0 {
		return "none", nil
	}
	return grantID(string(resp.Kvs[0].Key), resp.Kvs[0].CreateRevision), nil
}

// clock reads the Date header.
func (m member) clock(ctx context.Context) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+m.addr+"/version", http.NoBody)
	if err != nil {
		return "", fmt.Errorf("clock of %s: %w", m.name, err)
	}
	resp, err := m.web.Do(req)
	if err != nil {
		return "", fmt.Errorf("clock of %s: %w", m.name, err)
	}
	defer resp.Body.Close()
	t, err := http.ParseTime(resp.Header.Get("Date"))
	if err != nil {
		return "", fmt.Errorf("clock of %s: %w", m.name, err)
	}
	return t.UTC().Format(time.RFC3339), nil
}

// Ready has every member take a write through the quorum and know its leader.
func (s *service) Ready(ctx context.Context) error {
	if s.broken != nil {
		return s.broken
	}
	ctx, done := context.WithTimeout(ctx, s.params.Timeout)
	defer done()
	for _, m := range s.members {
		if _, err := m.client.Put(ctx, readyKey, m.name); err != nil {
			return fmt.Errorf("%s does not take a write: %w", m.name, err)
		}
		st, err := m.client.Status(ctx, m.addr)
		if err != nil {
			return fmt.Errorf("%s does not tell its status: %w", m.name, err)
		}
		if st.Leader == 0 {
			return fmt.Errorf("%s knows no leader", m.name)
		}
	}
	return nil
}

// Describe returns the server's version and what decides about results, the TTL that a lease really gets among them.
func (s *service) Describe(ctx context.Context) map[string]string {
	out := map[string]string{
		"etcd.members":   strconv.Itoa(len(s.members)),
		"etcd.heartbeat": s.params.Heartbeat.String(),
		"etcd.election":  s.params.Election.String(),
		"etcd.fsync":     strconv.FormatBool(!s.params.NoFsync),
		"lock.retry":     "none: waiters watch the key before theirs",
		"lock.recipe":    "runs in the client",
		"lock.timeout":   s.params.Timeout.String(),
		"lock.ttl":       s.ttl.String(),
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
		_, _ = m.client.Revoke(ctx, g.ID) // it ends by itself if that did not work
		break
	}
	return out
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
