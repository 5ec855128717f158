// Package memory is a lock service within the supervisor's own process. One of its locks is correct. Each of the
// others is wrong in one way, so that every checker has a violation to find.
package memory

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/backends/listed"
	"github.com/lockquake/lockquake/backends/topology"
	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/internal/node"
)

// Backend returns a store in this process, one for each run.
func Backend() listed.Backend {
	b := listed.Backend{
		Backend: backends.Backend{
			Name:      "memory",
			Doc:       "A lock service in the supervisor's own process. Besides the correct lock it has broken ones, the positive controls.",
			InProcess: true,
		},
		Maker: topology.Maker{New: newTopology},
	}
	for _, v := range variants {
		b.Locks = append(b.Locks, v.lock())
	}
	return b
}

type setup struct {
	common topology.Common
	params params
}

// params is what a scenario may set, and how the service finds the store of its clients.
type params struct {
	Price price  `yaml:",inline" json:"price"`
	ID    uint64 `yaml:"-" json:"id,omitempty"` // of the topology, within this process
}

// topologies counts the topologies made in this process.
var topologies atomic.Uint64

func newTopology(c topology.Common, decode func(into any) error) (topology.Topology, error) {
	s := setup{common: c}
	if err := decode(&s.params); err != nil {
		return nil, err
	}
	s.params.ID = topologies.Add(1)
	if err := s.params.Price.check(c.Lock); err != nil {
		return nil, err
	}
	if c.Nodes != 0 {
		return nil, fmt.Errorf("backend memory: nodes is %d; it has none", c.Nodes)
	}
	return s, nil
}

// Specs returns none: the store has no nodes.
func (setup) Specs() []node.Spec { return nil }

// Params returns the price of lock metered and the topology's number; the access has the run and the lock.
func (t setup) Params() any { return t.params }

// Service returns the handle.
func (t setup) Service([]node.Handle) topology.Service { return service(t) }

type service setup

// Facts returns what a node could be asked, though there is no node.
func (service) Facts() map[string]string {
	return map[string]string{chaos.FactServes: "always true: there is no server that could fail"}
}

// store returns the store of the service's clients; nil while there are none.
func (s service) store() *store {
	stores.Lock()
	defer stores.Unlock()
	return stores.byID[s.params.ID]
}

// Stored returns the holder of a lock, and until when it holds.
func (s service) Stored(_ context.Context, name string) (topology.Stored, error) {
	st := s.store()
	if st == nil {
		return topology.Stored{}, errors.New("no client has connected to the store yet")
	}
	return st.look(name), nil
}

// Requests returns the number of requests to the store.
func (s service) Requests(context.Context) map[string]int64 {
	st := s.store()
	if st == nil {
		return nil
	}
	return map[string]int64{"memory": st.requests.Load()}
}

// Contents counts the store's records.
func (s service) Contents(context.Context) (map[string]topology.Content, error) {
	c := topology.Content{PerLock: 1}
	if st := s.store(); st != nil {
		st.mu.Lock()
		defer st.mu.Unlock()
		c.N = int64(len(st.locks)) + st.left
	}
	return map[string]topology.Content{"records": c}, nil
}

// Ask knows only chaos.FactServes, which is always true.
func (service) Ask(_ context.Context, _, fact string) (string, error) {
	if fact == chaos.FactServes {
		return "true", nil
	}
	return "", fmt.Errorf("memory has no fact %q", fact)
}

// Ready always succeeds.
func (service) Ready(context.Context) error { return nil }

// Describe returns the settings.
func (s service) Describe(context.Context) map[string]string {
	out := map[string]string{"lock.ttl": s.common.TTL.String(), "lock.retry": "none: waiters are queued in the store"}
	if text := s.params.Price.String(); text != "" {
		out["lock.price"] = text
	}
	return out
}

// Close has nothing to free.
func (service) Close() error { return nil }

// stores holds one store for each run and lock. They last as long as the process: a client that leaves and comes back
// must find the same tokens.
var stores = struct {
	sync.Mutex
	byRun map[string]*store
	byID  map[uint64]*store // by the number of the topology that the clients got
}{byRun: map[string]*store{}, byID: map[uint64]*store{}}

func storeOf(a backends.Access, v variant, p params) *store {
	stores.Lock()
	defer stores.Unlock()
	k := fmt.Sprintf("%s/%s/%d", a.Run, a.Lock, a.Permits)
	s, ok := stores.byRun[k]
	if !ok {
		s = &store{
			flaws: v.flaws, price: p.Price, permits: a.Permits, reenters: v.reenters, locks: map[string]*record{},
			freed: map[uint64]bool{},
		}
		stores.byRun[k] = s
	}
	stores.byID[p.ID] = s
	return s
}
