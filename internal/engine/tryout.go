package engine

import (
	"context"
	"errors"
	"sync"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/clock"
)

// Tried is what came of one entry of a scenario's list of faults.
type Tried struct {
	Entry int // its index
	Fault history.Fault
}

// TryOut starts the nodes of a scenario and injects the entries of its list of faults once each, and heals each as soon as its receipt is
// taken. There is no load, and nothing is judged. Stages come one after another, the rows of a stage side by side, and the entries of a row
// one after another. told is called with each entry that is healed, by one goroutine at a time.
//
// When ctx ends, what stands is healed and the nodes are torn down first.
func TryOut(ctx context.Context, o Options, stages [][][]int, told func(Tried)) (err error) {
	o.Began = clock.Now()
	p, err := Check(o)
	if err != nil {
		return err
	}
	r := newRun(o, p)
	if err := r.prepare(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.finish(ctx)) }()
	if err := r.up(ctx); err != nil {
		return errors.Join(ctx.Err(), MissingError{Text: err.Error(), Err: err})
	}
	var telling sync.Mutex
	for _, rows := range stages {
		var side sync.WaitGroup
		for _, row := range rows {
			side.Go(func() {
				for _, entry := range row {
					if ctx.Err() != nil {
						return
					}
					f := r.tryOne(ctx, p.injections[entry])
					telling.Lock()
					told(Tried{Entry: entry, Fault: f})
					telling.Unlock()
				}
			})
		}
		side.Wait()
	}
	return ctx.Err()
}

// tryOne injects and heals.
func (r *run) tryOne(ctx context.Context, inj injection) history.Fault {
	f := r.inject(ctx, inj, clock.Now())
	r.healOne(f)
	r.mu.Lock()
	defer r.mu.Unlock()
	return *f
}

// Faults lists what the scenario's faults ask for, each way and each node that they may hit once.
func (p *Plan) Faults() []Asked {
	var out []Asked
	seen := map[Asked]bool{}
	for _, inj := range p.allInjections() {
		a := Asked{Fault: inj.kind.Name, Keys: inj.params}
		if _, linked := inj.fault.(chaos.Linked); linked {
			a.Linked = true
		}
		roles := p.roles(inj.selector)
		for _, role := range roles {
			one := a
			one.Role = string(role)
			if !seen[one] {
				seen[one] = true
				out = append(out, one)
			}
		}
	}
	return out
}

// Asked is one fault as a scenario asks for it.
type Asked struct {
	Fault, Keys string
	Role        string // of the nodes that it may hit
	Linked      bool   // it is about the links between nodes
}
