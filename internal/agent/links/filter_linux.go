// Package links filters, holds and shapes the packets of processes in network namespaces of their own, and measures
// links.
package links

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/lockquake/lockquake/chaos/links"
	"github.com/lockquake/lockquake/internal/agent"
	"github.com/lockquake/lockquake/internal/agent/proc"
)

// Mechanism returns the mechanism for links. It keeps its own state of what it has installed.
func Mechanism() agent.Mechanism {
	l, s := newLinks(), newSides()
	return agent.Mechanism{Orders: map[string]agent.Handler{
		links.DoAround:      {Do: doAround},
		links.DoConnections: {Do: agent.Takes(doConnections)},
		links.DoReset:       {Do: agent.Takes(doReset), Can: canReset},
		links.DoEngines: {
			Do:      func(context.Context, agent.Call) (any, error) { return tryEngines(), nil },
			Machine: true,
		},
		links.DoFilter:   {Do: agent.Takes(l.doFilter), Can: supported},
		links.DoFiltered: {Do: agent.Takes(l.doFiltered)},
		links.DoMeasure:  {Do: agent.Takes(doMeasure)},
		links.DoProbe:    {Do: agent.Takes(doProbe)},
		links.DoShake:    {Do: agent.Takes(doShake)},
		links.DoSideOpen: {Do: agent.Takes(s.doOpen)},
		links.DoSideSend: {Do: agent.Takes(s.doSend)},
		links.DoSideSeen: {Do: s.doSeen},
	}}
}

// linkFilters has the filters that the agent installed on the links of a run's processes.
type linkFilters struct {
	mu      sync.Mutex
	filters map[string]*keyedFilter
	tables  map[tablePlace]bool // that belong to filters
	trees   map[uint64]*tree    // by namespace
}

// tablePlace names a table beyond its namespace's file.
type tablePlace struct {
	space uint64 // id of the namespace
	name  string
}

func newLinks() *linkFilters {
	shared() // before any thread enters another namespace
	return &linkFilters{
		filters: make(map[string]*keyedFilter), tables: make(map[tablePlace]bool),
		trees: make(map[uint64]*tree),
	}
}

// keyedFilter has the filters of one key: one in the namespace of the process, and one for each later process that
// replaced it.
type keyedFilter struct {
	mu      sync.Mutex // held while it is installed or removed; others go on meanwhile
	in      []*filter
	packets uint64 // met by filters removed because another process replaced theirs
}

// filter is one table, and the handler of the packets that its rules do not decide themselves.
type filter struct {
	process proc.Process
	space   *namespace
	table   table
	handler packetHandler // nil if the rules decide all
	bare    bool          // there is no table: the handler gets its packets itself
}

// packetHandler decides about the packets that rules hand to it.
type packetHandler interface {
	// met adds what it counted.
	met(f *links.Filtered) error
	// release passes the waiting packets, and from now on all that arrive. It returns how many were waiting.
	release() int
	// close releases the packets and ends the handler. The rules are gone by then.
	close() error
}

// doFilter installs a filter.
func (l *linkFilters) doFilter(_ context.Context, c agent.Call, args links.FilterArgs) (any, error) {
	c.Stand(func(context.Context) (any, error) { return l.remove(c.Key) })
	return nil, l.put(c.Key, c.Process, args)
}

// doFiltered returns what a filter has met.
func (l *linkFilters) doFiltered(_ context.Context, _ agent.Call, key string) (any, error) {
	k := l.keyed(key, false)
	if k == nil {
		return nil, fmt.Errorf("no filter stands under %q", key)
	}
	return k.met()
}

// keyed returns the filters of a key.
func (l *linkFilters) keyed(key string, make bool) *keyedFilter {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.filters[key] == nil && make {
		l.filters[key] = &keyedFilter{}
	}
	return l.filters[key]
}

// put installs a filter in the process's namespace. If the key already has a filter there, because the process it
// replaced lived in the same namespace, that filter stays, so that no packet slips through.
func (l *linkFilters) put(key string, p proc.Process, args links.FilterArgs) error {
	k := l.keyed(key, true)
	k.mu.Lock()
	defer k.mu.Unlock()
	space, err := openNamespace(p)
	if err != nil {
		return err
	}
	if i := slices.IndexFunc(k.in, func(f *filter) bool { return f.space.id == space.id }); i >= 0 {
		k.in[i].process = p
		return space.close()
	}
	l.account(space, tableOf(space, key).name, true)
	f, err := l.newFilter(space, key, args)
	if err != nil {
		l.account(space, tableOf(space, key).name, false)
		return errors.Join(err, space.close())
	}
	f.process = p
	dead := slices.DeleteFunc(slices.Clone(k.in), func(f *filter) bool { return f.process.Alive() })
	k.in = append(slices.DeleteFunc(k.in, func(f *filter) bool { return slices.Contains(dead, f) }), f)
	var errs []error
	for _, f := range dead {
		met, err := l.takeDown(f)
		k.packets += met.Packets
		errs = append(errs, err, f.space.close())
	}
	return errors.Join(errs...)
}

func (l *linkFilters) newFilter(space *namespace, key string, args links.FilterArgs) (*filter, error) {
	f := &filter{space: space, table: tableOf(space, key)}
	to, err := f.chooseHandler(l, key, args)
	if err != nil {
		return nil, err
	}
	if f.bare {
		return f, nil
	}
	if err := f.table.install(args.Rules, to); err != nil {
		if f.handler != nil {
			err = errors.Join(err, f.handler.close())
		}
		return nil, err
	}
	return f, nil
}

// chooseHandler makes the handler for rules that need one, and returns how packets get to it.
func (f *filter) chooseHandler(l *linkFilters, key string, args links.FilterArgs) (queueTarget, error) {
	has := func(how string) bool {
		return slices.ContainsFunc(args.Rules, func(r links.Rule) bool { return r.How == how })
	}
	switch {
	case has(links.Shape) && (args.Shaping == nil || has(links.Hold)):
		return queueTarget{}, errors.New("rules that shape need a shaping and nothing else")
	case has(links.Shape) && args.Shaping.Engine != links.Queue:
		g, err := l.shapeInKernel(f.space, args)
		if err != nil {
			return queueTarget{}, err
		}
		f.handler, f.bare = g, true
		return queueTarget{}, nil
	case has(links.Shape):
		s, err := newShaper(f.space, key, *args.Shaping)
		if err != nil {
			return queueTarget{}, err
		}
		f.handler = s
		return toQueue(s.queue.number), nil
	case has(links.Hold):
		h, err := newHolder(f.space)
		if err != nil {
			return queueTarget{}, err
		}
		f.handler = h
		return toQueue(h.queue.number), nil
	}
	return queueTarget{}, nil
}

// remove removes the filter and releases its held packets in order. The namespace stays open.
func (f *filter) remove() (met links.Filtered, err error) {
	var counted, removed, closed error
	if !f.bare {
		met.Packets, counted = f.table.packets()
	}
	released := 0
	if f.handler != nil {
		counted = errors.Join(counted, f.handler.met(&met))
		released = f.handler.release() // before the rules: what still arrives must not overtake what waits
	}
	if !f.bare {
		removed = f.table.remove()
	}
	if f.handler != nil {
		closed = f.handler.close()
	}
	met.Held = released
	if met.Shaped != nil {
		met.Shaped.Passed, met.Shaped.Waiting = met.Shaped.Passed+uint64(met.Shaped.Waiting), 0
	}
	return met, errors.Join(counted, removed, closed)
}

// takeDown removes a filter of a key.
func (l *linkFilters) takeDown(f *filter) (links.Filtered, error) {
	met, err := f.remove()
	l.account(f.space, f.table.name, false)
	return met, err
}

func (l *linkFilters) account(space *namespace, name string, stands bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if stands {
		l.tables[tablePlace{space.id, name}] = true
	} else {
		delete(l.tables, tablePlace{space.id, name})
	}
}

// addHandled sums the handlers' counters. If the target restarted, only the last namespace's handler counts for Shaped.
func addHandled(sum *links.Filtered, kept links.Filtered) {
	sum.Held += kept.Held
	if kept.Shaped != nil {
		sum.Shaped = kept.Shaped
	}
}

// met adds up the counts of the key's filters.
func (k *keyedFilter) met() (links.Filtered, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := links.Filtered{Packets: k.packets}
	for _, f := range k.in {
		one := links.Filtered{}
		var counted, kept error
		if !f.bare {
			one.Packets, counted = f.table.packets()
		}
		if f.handler != nil {
			kept = f.handler.met(&one)
		}
		if err := errors.Join(counted, kept); err != nil {
			return out, err
		}
		out.Packets += one.Packets
		addHandled(&out, one)
	}
	return out, nil
}

// remove removes all filters of the key and reports what is left in the namespaces.
func (l *linkFilters) remove(key string) (any, error) {
	k := l.keyed(key, true)
	k.mu.Lock()
	defer k.mu.Unlock()
	l.mu.Lock()
	delete(l.filters, key)
	l.mu.Unlock()
	out := links.Filtered{Packets: k.packets}
	var errs []error
	for _, f := range k.in {
		met, err := l.takeDown(f)
		out.Packets += met.Packets
		addHandled(&out, met)
		errs = append(errs, err, l.look(f.space, &out), f.space.close())
	}
	k.in = nil
	return out, errors.Join(errs...)
}

// look records our tables and traffic control in a namespace: those of active filters, and others. No filter comes or
// goes meanwhile, so that none is mistaken for a leftover.
func (l *linkFilters) look(space *namespace, out *links.Filtered) error {
	faults, strays, err := l.lookAtTree(space)
	if err != nil {
		return err
	}
	out.Others, out.Left = out.Others+faults, append(out.Left, strays...)
	l.mu.Lock()
	defer l.mu.Unlock()
	names, err := ownTables(space)
	if err != nil {
		return err
	}
	for _, name := range names {
		if l.tables[tablePlace{space.id, name}] {
			out.Others++
		} else {
			out.Left = append(out.Left, name)
		}
	}
	return nil
}
