package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
)

// links is what the agent has put on the links of a run's processes.
type links struct {
	mu      sync.Mutex
	filters map[string]*keyedFilter
	tables  map[tablePlace]bool // that filters account for
}

// tablePlace names a table beyond its namespace's file.
type tablePlace struct {
	space uint64 // id of the namespace
	name  string
}

func newLinks() *links {
	shared() // before any thread is elsewhere
	return &links{filters: make(map[string]*keyedFilter), tables: make(map[tablePlace]bool)}
}

// keyedFilter is what stands under one key: a filter in the namespace of a process, or of each process that took the
// place of one before.
type keyedFilter struct {
	mu      sync.Mutex // held while it is put up or taken down; others go on meanwhile
	in      []*filter
	packets uint64 // met by filters that were taken down because their process was followed by another
}

// filter is one table, and whoever keeps the packets that it holds.
type filter struct {
	process Process
	space   *namespace
	table   table
	holder  *holder // nil without rules that hold
}

// doFilter puts up a filter.
func doFilter(_ context.Context, c call) (any, error) {
	args, err := decode[FilterArgs](c.args)
	if err != nil {
		return nil, err
	}
	c.stand(func(context.Context) (any, error) { return c.links.remove(c.key) })
	return nil, c.links.put(c.key, c.process, args.Rules)
}

// doFiltered tells what a filter has met.
func doFiltered(_ context.Context, c call) (any, error) {
	key, err := decode[string](c.args)
	if err != nil {
		return nil, err
	}
	k := c.links.keyed(key, false)
	if k == nil {
		return nil, fmt.Errorf("no filter stands under %q", key)
	}
	return k.met()
}

// keyed returns what stands under a key.
func (l *links) keyed(key string, make bool) *keyedFilter {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.filters[key] == nil && make {
		l.filters[key] = &keyedFilter{}
	}
	return l.filters[key]
}

// put puts a filter up in the process's namespace. Where the key's filter stands in that very namespace already, because the
// process took the place of one that lived there too, it is left as it is: no packet slips through between.
func (l *links) put(key string, p Process, rules []Rule) error {
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
	f, err := newFilter(space, key, rules)
	if err != nil {
		l.account(space, tableOf(space, key).name, false)
		return errors.Join(err, space.close())
	}
	f.process = p
	dead := slices.DeleteFunc(slices.Clone(k.in), func(f *filter) bool { return f.process.Alive() })
	k.in = append(slices.DeleteFunc(k.in, func(f *filter) bool { return slices.Contains(dead, f) }), f)
	var errs []error
	for _, f := range dead {
		packets, _, err := l.takeDown(f)
		k.packets += packets
		errs = append(errs, err, f.space.close())
	}
	return errors.Join(errs...)
}

func newFilter(space *namespace, key string, rules []Rule) (*filter, error) {
	f := &filter{space: space, table: tableOf(space, key)}
	var number uint16
	if slices.ContainsFunc(rules, func(r Rule) bool { return r.How == Hold }) {
		var err error
		if f.holder, err = newHolder(space); err != nil {
			return nil, err
		}
		number = f.holder.queue.number
	}
	if err := f.table.install(rules, number); err != nil {
		return nil, errors.Join(err, f.holder.close())
	}
	return f, nil
}

// remove takes the filter down, letting go in order what it held. The namespace stays open.
func (f *filter) remove() (packets uint64, held int, err error) {
	packets, counted := f.table.packets()
	if f.holder != nil {
		held = f.holder.release() // before the rules: what still arrives must not overtake what waits
	}
	return packets, held, errors.Join(counted, f.table.remove(), f.holder.close())
}

// takeDown removes a filter that is accounted for.
func (l *links) takeDown(f *filter) (packets uint64, held int, err error) {
	packets, held, err = f.remove()
	l.account(f.space, f.table.name, false)
	return packets, held, err
}

func (l *links) account(space *namespace, name string, stands bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if stands {
		l.tables[tablePlace{space.id, name}] = true
	} else {
		delete(l.tables, tablePlace{space.id, name})
	}
}

// met adds up what the key's filters have met.
func (k *keyedFilter) met() (Filtered, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := Filtered{Packets: k.packets}
	for _, f := range k.in {
		n, err := f.table.packets()
		if err != nil {
			return out, err
		}
		out.Packets += n
		if f.holder == nil {
			continue
		}
		waiting, err := f.holder.queue.waiting()
		if err != nil {
			return out, err
		}
		out.Held += waiting
	}
	return out, nil
}

// remove takes down all that stands under the key and looks at what is left in the namespaces.
func (l *links) remove(key string) (any, error) {
	k := l.keyed(key, true)
	k.mu.Lock()
	defer k.mu.Unlock()
	l.mu.Lock()
	delete(l.filters, key)
	l.mu.Unlock()
	out := Filtered{Packets: k.packets}
	var errs []error
	for _, f := range k.in {
		packets, held, err := l.takeDown(f)
		out.Packets, out.Held = out.Packets+packets, out.Held+held
		errs = append(errs, err, l.look(f.space, &out), f.space.close())
	}
	k.in = nil
	return out, errors.Join(errs...)
}

// look notes which tables of ours are in a namespace: those of filters that stand, and others.
func (l *links) look(space *namespace, out *Filtered) error {
	names, err := ownTables(space)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, name := range names {
		if l.tables[tablePlace{space.id, name}] {
			out.Others++
		} else {
			out.Left = append(out.Left, name)
		}
	}
	return nil
}
