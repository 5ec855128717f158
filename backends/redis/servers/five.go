package servers

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
	"github.com/lockquake/lockquake/backends/redis/access"
	"github.com/lockquake/lockquake/backends/topology"
	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/internal/node"
)

// Five returns independent Redis servers, as the Redlock algorithm requires them, with these locks.
func Five(list []backends.Lock) listed.Backend {
	return listed.Backend{
		Backend: backends.Backend{
			Name:    access.Five,
			Doc:     "Five independent Redis servers (or 3, 7, 9); a lock is held when a majority has its key.",
			Modules: []string{access.GoRedis},
			Locks:   list,
			Servers: backends.Servers{
				Majority: backends.ByClients, CountsConnections: true, Durable: durable,
				Forgets: true, RefusesRenewals: true,
			},
		},
		Maker: maker(6, newFive, access.Port),
	}
}

// FiveParams is what a scenario may set besides the keys of all backends.
type FiveParams struct {
	// Persistence is "none", "snapshot", "save-points", "everysec" or "always", as for one server.
	Persistence string `yaml:"persistence" json:"persistence"`
	// Restart is "immediate" or "delayed". A delayed server comes back only when every key that it may have forgotten
	// has expired.
	Restart             string `yaml:"restart" json:"restart"`
	access.QuorumParams `yaml:",inline"`
}

// five is the topology of independent servers.
type five struct {
	common topology.Common
	params FiveParams
	nodes  int
}

func newFive(c topology.Common, decode func(into any) error) (topology.Topology, error) {
	p := FiveParams{Persistence: "none", Restart: restartImmediate, QuorumParams: access.QuorumDefaults(c.TTL)}
	if err := decode(&p); err != nil {
		return nil, err
	}
	if err := errors.Join(checkPersistence(p.Persistence), checkRestart(p.Restart), p.Check(c.TTL),
		checkPrefix(c)); err != nil {
		return nil, fmt.Errorf("backend redlock: %w", err)
	}
	f := five{common: c, params: p, nodes: 5}
	if c.Nodes != 0 {
		f.nodes = c.Nodes
	}
	if f.nodes < access.FewestServers || f.nodes > access.MostServers || f.nodes%2 == 0 {
		return nil, fmt.Errorf("backend redlock: nodes is %d; it runs an odd number of servers from %d to %d", c.Nodes,
			access.FewestServers, access.MostServers)
	}
	return f, nil
}

// Specs returns the servers.
func (f five) Specs() []node.Spec {
	specs := make([]node.Spec, f.nodes)
	for i := range specs {
		specs[i] = independent(fmt.Sprintf("redlock-%d", i+1), f.params.Persistence,
			restartDelay(f.params.Restart, f.common.TTL))
	}
	return specs
}

// Params returns what the clients get.
func (f five) Params() any { return f.params.QuorumParams }

// Service returns the handle on the running servers.
func (f five) Service(nodes []node.Handle) topology.Service {
	servers := membersOf(nodes, seen{
		port: access.Port, timeout: observeTimeout,
		keys: access.Keyspace(f.common.Prefix()),
	})
	return &fiveService{independents(servers, f.common), f}
}

// majorityFact asks for the value that a majority of servers have at a lock's key.
const majorityFact = "majority:"

// fiveService answers for independent servers.
type fiveService struct {
	independentServers
	five five
}

// freshFact asks for a moment after which no server syncs anything for half a second.
const freshFact = "fresh-seconds"

// Facts lists the facts. All are about one server, except the majority and the moment without syncs. There is no role:
// each server says it is a master, and none leads the others.
func (s *fiveService) Facts() map[string]string {
	facts := s.members.Facts()
	delete(facts, chaos.FactRole)
	facts[majorityFact+"LOCK"] = `the value that a majority of all servers have at the key of lock LOCK, or "none"; the same for each node`
	facts[freshFact] = "true when fresh-second is true of all servers in the same second of their clocks; the same for each node; the query waits for it"
	return facts
}

// Ask asks one server for one fact, or all servers for the majority's value or a moment without syncs.
func (s *fiveService) Ask(ctx context.Context, node, fact string) (string, error) {
	if name, ok := strings.CutPrefix(fact, majorityFact); ok {
		return majority(ctx, s.members, name)
	}
	if fact == freshFact {
		return freshSeconds(ctx, s.members)
	}
	return s.members.Ask(ctx, node, fact)
}

// majority asks all servers in parallel. If too few answer to decide, it returns an error.
func majority(ctx context.Context, ms members, name string) (string, error) {
	values := make([]string, len(ms))
	errs := make([]error, len(ms))
	var group sync.WaitGroup
	for i, m := range ms {
		group.Go(func() { values[i], errs[i] = m.holder(ctx, name) })
	}
	group.Wait()
	return majorityOf(values, errs)
}

// freshSeconds asks all servers in parallel, until they answer in the same second.
func freshSeconds(ctx context.Context, ms members) (string, error) {
	for {
		at := make([]time.Time, len(ms))
		errs := make([]error, len(ms))
		var group sync.WaitGroup
		for i, m := range ms {
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

// majorityOf returns the value that more than half have; "none" stands for no key. Servers with an error may have any
// value.
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
		return "", fmt.Errorf("%d of %d servers do not answer, too many to know the state of a majority: %w", silent,
			len(values), last)
	}
	return "none", nil
}

// Describe returns the servers' versions and the settings that affect results.
func (s *fiveService) Describe(ctx context.Context) map[string]string {
	p := s.five.params
	out := map[string]string{
		"redis.topology":    strconv.Itoa(len(s.members)) + " independent",
		"redis.version":     s.members.version(ctx),
		"redis.persistence": p.Persistence,
		"redis.restart":     p.Restart,
		"lock.ttl":          s.five.common.TTL.String(),
		"lock.clock_drift":  fmt.Sprintf("%g of the ttl and 2ms: %s", p.ClockDrift, p.Drift(s.five.common.TTL)),
		"lock.node_timeout": p.NodeTimeout.String(),
		"lock.order":        p.Order,
		"lock.elapsed":      p.Elapsed,
		"lock.release":      p.Release,
		"lock.retry":        p.Retry.String(),
	}
	s.five.common.Drop(out, "redis.persistence", "redis.restart")
	return out
}
