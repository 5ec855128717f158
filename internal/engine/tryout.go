package engine

import (
	"context"
	"errors"
	"sync"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/internal/engine/plan"
)

// Tried is the result of one entry of a scenario's list of faults.
type Tried struct {
	Entry int // its index
	Fault history.Fault
	Hosts []string // of its targets, if there are several machines
}

// TryOut starts the nodes of a scenario and injects each entry of its list of faults once. Each is healed as soon as
// it has a receipt. There is no load, and nothing is judged. Stages come one after another, the rows of a stage in
// parallel, and the entries of a row one after another. TryOut calls told with each healed entry, by one goroutine at
// a time. When ctx ends, it heals active faults and tears the nodes down before it returns.
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
		return errors.Join(ctx.Err(), plan.MissingError{Text: err.Error(), Err: err})
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
					f := r.injector.tryOne(ctx, p.Injections[entry])
					telling.Lock()
					told(Tried{Entry: entry, Fault: f, Hosts: r.nodes.HostsOf(f.Targets)})
					telling.Unlock()
				}
			})
		}
		side.Wait()
	}
	return ctx.Err()
}

// tryOne injects and heals.
func (in *injector) tryOne(ctx context.Context, inj plan.Injection) (out history.Fault) {
	f := in.inject(ctx, plan.Due{Inj: inj}, clock.Now())
	in.heal(f, 0)
	in.faults.Change(func() { out = *f.Fault })
	return out
}
