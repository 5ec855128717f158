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
	mu      sync.Mutex // held while anything is put up or taken down
	filters map[string]*keyedFilter
}

func newLinks() *links {
	shared() // before any thread is elsewhere
	return &links{filters: make(map[string]*keyedFilter)}
}

// keyedFilter is what stands under one key: a filter in the namespace of a process, or of each process that took the
// place of one before.
type keyedFilter struct {
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
	return c.links.seen(key)
}

// put puts a filter up in the process's namespace. Where the key's filter stands in that very namespace already, because the
// process took the place of one that lived there too, it is left as it is: no packet slips through between.
func (l *links) put(key string, p Process, rules []Rule) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	space, err := openNamespace(p)
	if err != nil {
		return err
	}
	k := l.filters[key]
	if k == nil {
		k = &keyedFilter{}
		l.filters[key] = k
	}
	if i := slices.IndexFunc(k.in, func(f *filter) bool { return f.space.id == space.id }); i >= 0 {
		k.in[i].process = p
		return space.close()
	}
	f, err := newFilter(space, key, rules)
	if err != nil {
		return errors.Join(err, space.close())
	}
	f.process = p
	k.in = append(k.in, f)
	return k.dropDead()
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

// dropDead takes down what stands in the namespaces of processes that are gone and were followed by another elsewhere.
func (k *keyedFilter) dropDead() error {
	var errs []error
	last := len(k.in) - 1
	k.in = slices.DeleteFunc(k.in, func(f *filter) bool {
		if f == k.in[last] || f.process.Alive() {
			return false
		}
		met, _, err := f.remove()
		k.packets += met
		errs = append(errs, err, f.space.close())
		return true
	})
	return errors.Join(errs...)
}

// remove takes the filter down, letting go in order what it held. The namespace stays open.
func (f *filter) remove() (packets uint64, held int, err error) {
	packets, counted := f.table.packets()
	if f.holder != nil {
		held = f.holder.release() // before the rules: what still arrives must not overtake what waits
	}
	return packets, held, errors.Join(counted, f.table.remove(), f.holder.close())
}

// seen adds up what the key's filters have met.
func (l *links) seen(key string) (Filtered, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.filters[key]
	if k == nil {
		return Filtered{}, fmt.Errorf("no filter stands under %q", key)
	}
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
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.filters[key]
	if k == nil {
		return Filtered{}, nil
	}
	delete(l.filters, key)
	out := Filtered{Packets: k.packets}
	var errs []error
	for _, f := range k.in {
		packets, held, err := f.remove()
		out.Packets, out.Held = out.Packets+packets, out.Held+held
		errs = append(errs, err, l.look(f.space, &out), f.space.close())
	}
	return out, errors.Join(errs...)
}

// look notes which tables of ours are in a namespace: those of filters that stand, and others.
func (l *links) look(space *namespace, out *Filtered) error {
	tables, err := ownTables(space)
	if err != nil {
		return err
	}
	for _, name := range tables {
		if l.accounts(space, name) {
			out.Others++
		} else {
			out.Left = append(out.Left, name)
		}
	}
	return nil
}

func (l *links) accounts(space *namespace, name string) bool {
	for _, k := range l.filters {
		for _, f := range k.in {
			if f.space.id == space.id && f.table.name == name {
				return true
			}
		}
	}
	return false
}
