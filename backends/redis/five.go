package redis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/backends/listed"
	"github.com/lockquake/lockquake/backends/topology"
	"github.com/lockquake/lockquake/internal/node"
)

// nameFive is the backend of independent servers.
const nameFive = "redlock"

// Five is a handful of Redis servers that know nothing of each other, as the Redlock algorithm wants them.
func Five() listed.Backend {
	return listed.Backend{
		Backend: backends.Backend{
			Name:    nameFive,
			Doc:     "Five independent Redis servers (or 3, 7, 9) that know nothing of each other; a lock is held where a majority has its key.",
			Locks:   []backends.Lock{redlock(), redlockNoElapsedCheck(), redlockIncr(), redsyncFive()},
			Servers: backends.Servers{Majority: backends.ByClients, CountsConnections: true},
		},
		Maker: topology.Maker{Attachable: []string{Port}, Syncing: syncing, OneThread: true, New: newFive, Health: health},
	}
}

// FiveParams is what a scenario may set beside the keys that all backends have.
type FiveParams struct {
	// Persistence is "none", "snapshot", "save-points", "everysec" or "always", as for one server.
	Persistence string `yaml:"persistence" json:"persistence"`
	// Restart is "immediate", or "delayed": a server that ended comes back only when every key that it may have forgotten is over.
	Restart      string `yaml:"restart" json:"restart"`
	QuorumParams `yaml:",inline"`
}

// QuorumParams is what a client process is told.
type QuorumParams struct {
	// ClockDrift is the part of the TTL by which the clocks of the servers and of the client may differ within it. Another 2 ms are
	// taken off for what Redis' own expiry may be late.
	ClockDrift float64 `yaml:"clock_drift" json:"clock_drift"`
	// NodeTimeout bounds one command to one server, connecting included. It should be small against the TTL, or a dead server
	// eats the validity up; it may be as long as the TTL to show just that. The default is redsync's: a twentieth of the TTL.
	NodeTimeout time.Duration `yaml:"node_timeout" json:"node_timeout_ns"`
	// Order is "parallel" (all servers at once, as libraries do) or "sequential" (one after the other, as published).
	Order string `yaml:"order" json:"order"`
	// Elapsed is the clock by which a client measures how long asking took: "monotonic", or "wall", as implementations do that subtract two
	// times of day. A wall clock that is set back meanwhile hides that the validity is over.
	Elapsed string `yaml:"elapsed" json:"elapsed,omitempty"`
	// Release is whom a client asks to delete its key: "all" servers, or those that "granted" it. The key stays on a server whose yes was lost.
	Release string         `yaml:"release" json:"release,omitempty"`
	Retry   backends.Retry `yaml:"retry" json:"retry"`
}

// The orders in which servers are asked.
const (
	orderParallel   = "parallel"
	orderSequential = "sequential"
)

// The clocks by which a client may measure how long asking took, and whom it may ask to delete its key.
const (
	elapsedMonotonic = "monotonic"
	elapsedWall      = "wall"
	releaseAll       = "all"
	releaseGranted   = "granted"
)

func quorumDefaults(ttl time.Duration) QuorumParams {
	return QuorumParams{
		ClockDrift:  0.01,
		NodeTimeout: max(ttl/20, time.Millisecond),
		Order:       orderParallel,
		Elapsed:     elapsedMonotonic,
		Release:     releaseAll,
		Retry:       backends.Retry{Delay: 50 * time.Millisecond, Jitter: 0.8},
	}
}

// drift is what a holder takes off a promise of length ttl.
func (p QuorumParams) drift(ttl time.Duration) time.Duration {
	return time.Duration(float64(ttl)*p.ClockDrift) + 2*time.Millisecond
}

// end returns when the validity of keys with this TTL ends that were asked for at start, before the first request.
func (p QuorumParams) end(start time.Time, ttl time.Duration) time.Time {
	return start.Add(ttl - p.drift(ttl))
}

// late returns by how much the validity was over when the replies were in, as the client's clock has it.
func (p QuorumParams) late(end time.Time) time.Duration {
	if p.Elapsed == elapsedWall {
		return time.Now().Round(0).Sub(end.Round(0)) // without the monotonic readings
	}
	return time.Since(end)
}

func (p QuorumParams) check(ttl time.Duration) error {
	if err := backends.CheckDuration("node_timeout", p.NodeTimeout, time.Millisecond); err != nil {
		return err
	}
	switch {
	case p.NodeTimeout > ttl:
		return fmt.Errorf("node_timeout is %s; it must be at most the ttl (%s), and should be a small part of it", p.NodeTimeout, ttl)
	case p.ClockDrift < 0 || p.ClockDrift >= 1:
		return fmt.Errorf("clock_drift is %g; it must be a part of the ttl, from 0 to below 1, such as 0.01", p.ClockDrift)
	case p.drift(ttl) >= ttl:
		return fmt.Errorf("clock_drift is %g; with the 2ms beside it, it leaves nothing of the ttl (%s)", p.ClockDrift, ttl)
	case p.Order != orderParallel && p.Order != orderSequential:
		return fmt.Errorf("order is %q; it must be %s or %s", p.Order, orderParallel, orderSequential)
	case p.Elapsed != elapsedMonotonic && p.Elapsed != elapsedWall:
		return fmt.Errorf("elapsed is %q; it must be %s or %s", p.Elapsed, elapsedMonotonic, elapsedWall)
	case p.Release != releaseAll && p.Release != releaseGranted:
		return fmt.Errorf("release is %q; it must be %s or %s", p.Release, releaseAll, releaseGranted)
	}
	return p.Retry.Check()
}

// five is the topology of independent servers.
type five struct {
	common topology.Common
	params FiveParams
	nodes  int
}

// The numbers of servers that make a majority worth having.
const (
	fewestServers = 3
	mostServers   = 9
)

func newFive(c topology.Common, decode func(into any) error) (topology.Topology, error) {
	p := FiveParams{Persistence: "none", Restart: restartImmediate, QuorumParams: quorumDefaults(c.TTL)}
	if err := decode(&p); err != nil {
		return nil, err
	}
	if err := errors.Join(checkPersistence(p.Persistence), checkRestart(p.Restart), p.check(c.TTL), checkPrefix(c)); err != nil {
		return nil, fmt.Errorf("backend redlock: %w", err)
	}
	f := five{common: c, params: p, nodes: 5}
	if c.Nodes != 0 {
		f.nodes = c.Nodes
	}
	if f.nodes < fewestServers || f.nodes > mostServers || f.nodes%2 == 0 {
		return nil, fmt.Errorf("backend redlock: nodes is %d; it runs an odd number of servers from %d to %d", c.Nodes, fewestServers, mostServers)
	}
	return f, nil
}

// Specs describes the servers.
func (f five) Specs() []node.Spec {
	specs := make([]node.Spec, f.nodes)
	for i := range specs {
		specs[i] = independent(fmt.Sprintf("redlock-%d", i+1), f.params.Persistence, restartDelay(f.params.Restart, f.common.TTL))
	}
	return specs
}

// Params is what the clients get.
func (f five) Params() any { return f.params.QuorumParams }

// Service returns the handle on the running servers.
func (f five) Service(nodes []node.Handle) topology.Service {
	servers := membersOf(nodes, seen{port: Port, timeout: observeTimeout, keys: keyspace(f.common.Prefix())})
	return &fiveService{attachedServers{members: servers, common: f.common}, f}
}

// quorumParams decodes what a client process was told.
func quorumParams(a backends.Access) (QuorumParams, error) {
	p := quorumDefaults(a.TTL)
	if err := backends.DecodeParams(a.Params, &p); err != nil {
		return p, fmt.Errorf("parameters of redlock: %w", err)
	}
	return p, nil
}

// majorityFact asks for the value that a majority of servers have at the key of a lock.
const majorityFact = "majority:"

// observeTimeout bounds one command of the harness's own to a server. The clients' node_timeout is theirs: the harness is not in
// a hurry.
const observeTimeout = time.Second

// fiveService answers for independent servers.
type fiveService struct {
	attachedServers
	five five
}

// freshFact asks for a moment after which no server syncs anything for half a second.
const freshFact = "fresh-seconds"

// Facts lists what can be asked, of one server but for the majority and the moment in which nobody syncs.
func (s *fiveService) Facts() map[string]string {
	facts := s.members.Facts()
	facts[majorityFact+"LOCK"] = `the value that a majority of all servers have at the key of lock LOCK, or "none"; of whichever node it is asked`
	facts[freshFact] = "true when fresh-second is true of all servers in the same second of their clocks; of whichever node it is asked, and asking waits for it"
	return facts
}

// Ask asks one server for one fact, or all for what a majority has or when nobody syncs.
func (s *fiveService) Ask(ctx context.Context, node, fact string) (string, error) {
	if name, ok := strings.CutPrefix(fact, majorityFact); ok {
		return s.majority(ctx, name)
	}
	if fact == freshFact {
		return s.freshSeconds(ctx)
	}
	return s.members.Ask(ctx, node, fact)
}

// majority asks all servers side by side. While too many do not answer to tell, the answer is an error.
func (s *fiveService) majority(ctx context.Context, name string) (string, error) {
	values := make([]string, len(s.members))
	errs := make([]error, len(s.members))
	var group sync.WaitGroup
	for i, m := range s.members {
		group.Go(func() { values[i], errs[i] = m.holder(ctx, name) })
	}
	group.Wait()
	return majorityOf(values, errs)
}

// freshSeconds asks all servers side by side, until they answer in the same second.
func (s *fiveService) freshSeconds(ctx context.Context) (string, error) {
	for {
		at := make([]time.Time, len(s.members))
		errs := make([]error, len(s.members))
		var group sync.WaitGroup
		for i, m := range s.members {
			group.Go(func() { at[i], errs[i] = m.freshSecond(ctx) })
		}
		group.Wait()
		if err := errors.Join(errs...); err != nil {
			return "", err
		}
		first := at[0].Unix()
		if !slices.ContainsFunc(at, func(t time.Time) bool { return t.Unix() != first }) {
			return strconv.FormatBool(true), nil
		}
	}
}

// majorityOf returns the value that more than half have, where "none" stands for no key. Servers with an error may have any.
func majorityOf(values []string, errs []error) (string, error) {
	quorum := len(values)/2 + 1
	count := map[string]int{}
	silent, most := 0, 0
	var last error
	for i, v := range values {
		if errs[i] != nil {
			silent, last = silent+1, errs[i]
			continue
		}
		if count[v]++; v != "none" {
			most = max(most, count[v])
		}
		if count[v] >= quorum {
			return v, nil
		}
	}
	if most+silent >= quorum {
		return "", fmt.Errorf("%d of %d servers do not answer, too many to tell what a majority has: %w", silent, len(values), last)
	}
	return "none", nil
}

// Describe returns the servers' versions and what decides about results.
func (s *fiveService) Describe(ctx context.Context) map[string]string {
	p := s.five.params
	out := map[string]string{
		"redis.topology":    strconv.Itoa(len(s.members)) + " independent",
		"redis.version":     s.members.version(ctx),
		"redis.persistence": p.Persistence,
		"redis.restart":     p.Restart,
		"lock.ttl":          s.common.TTL.String(),
		"lock.clock_drift":  fmt.Sprintf("%g of the ttl and 2ms: %s", p.ClockDrift, p.drift(s.common.TTL)),
		"lock.node_timeout": p.NodeTimeout.String(),
		"lock.order":        p.Order,
		"lock.elapsed":      p.Elapsed,
		"lock.release":      p.Release,
		"lock.retry":        p.Retry.String(),
	}
	s.common.Drop(out, "redis.persistence", "redis.restart")
	return out
}
