package links

import (
	"context"
	"fmt"
	"sync"

	"github.com/lockquake/lockquake/chaos/links"
	"github.com/lockquake/lockquake/internal/agent"
)

// sides are this agent's parts of plans shared with other agents, by the keys of their orders.
type sides struct {
	mu sync.Mutex
	by map[string]*side
}

// side is a gauge between one order and the next.
type side struct {
	*gauge
	over context.Context // the undo ends it, and so the order in progress
	end  context.CancelFunc
	busy sync.Mutex // held by the order in progress
}

func newSides() *sides { return &sides{by: make(map[string]*side)} }

// doOpen opens this agent's ends of a plan. They stay open until the undo, and echo datagrams that ask for it.
func (s *sides) doOpen(ctx context.Context, c agent.Call, args links.OpenArgs) (any, error) {
	g, err := newGauge(args.Plan)
	if err != nil {
		return nil, err
	}
	d := &side{gauge: g}
	d.over, d.end = context.WithCancel(context.Background())
	if !s.add(c.Key, d) {
		return nil, fmt.Errorf("%q is already under way", c.Key)
	}
	c.Stand(func(context.Context) (any, error) { return nil, s.close(c.Key) })
	var ends []links.OpenEnd
	err = d.act(ctx, func(ctx context.Context) (err error) { ends, err = g.open(ctx, c, args.Own); return err })
	if err != nil {
		_ = s.close(c.Key)
		return nil, err
	}
	return ends, nil
}

// doSend sends this agent's part.
func (s *sides) doSend(ctx context.Context, c agent.Call, ends []links.OpenEnd) (any, error) {
	d, err := s.find(c.Key)
	if err != nil {
		return nil, err
	}
	return nil, d.act(ctx, func(ctx context.Context) error { return d.send(ctx, ends) })
}

// doSeen returns what this agent saw.
func (s *sides) doSeen(ctx context.Context, c agent.Call) (any, error) {
	d, err := s.find(c.Key)
	if err != nil {
		return nil, err
	}
	var seen links.Sight
	err = d.act(ctx, func(ctx context.Context) (err error) { seen, err = d.look(ctx); return err })
	return seen, err
}

func (s *sides) add(key string, d *side) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.by[key] != nil {
		return false
	}
	s.by[key] = d
	return true
}

func (s *sides) find(key string) (*side, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.by[key] == nil {
		return nil, fmt.Errorf("nothing is open under %q", key)
	}
	return s.by[key], nil
}

// close closes the side of a key, if there is one.
func (s *sides) close(key string) error {
	s.mu.Lock()
	d := s.by[key]
	delete(s.by, key)
	s.mu.Unlock()
	if d == nil {
		return nil
	}
	d.end()
	d.busy.Lock()
	defer d.busy.Unlock()
	d.gauge.close()
	return nil
}

// act carries out an order, until the undo.
func (d *side) act(ctx context.Context, order func(context.Context) error) error {
	d.busy.Lock()
	defer d.busy.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(d.over, cancel)()
	if err := d.over.Err(); err != nil {
		return err
	}
	return order(ctx)
}
