package service

import (
	"context"
	"fmt"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/clock"
)

// compact makes a service drop the history of its keys, as operators and automatic compaction do. A client that watches
// from a dropped revision gets an error, and must read again.
type compact struct{}

func compactKind() chaos.Kind {
	return chaos.Kind{
		Name: "compact", Place: 24,
		Doc: "Compacts a service that keeps a history of its keys (etcd) up to the present. Receipt: the revision, " +
			"and the service's refusal to read an earlier one.",
		Servers: true,
		Single:  true,
		Began:   "history is compacted",
		New:     func(decode func(any) error) (chaos.Fault, error) { return compact{}, decode(&struct{}{}) },
	}
}

// Momentary returns true: nothing is left to heal.
func (compact) Momentary() bool { return true }

// Wants returns an error for a service that keeps no history.
func (compact) Wants(service chaos.Observer) error {
	_, err := compactor(service)
	return err
}

func compactor(service chaos.Observer) (chaos.Compactor, error) {
	return able[chaos.Compactor](service,
		chaos.Unavailable{What: "a compaction", Reason: "the service keeps no history of its keys"})
}

// Inject makes each target compact its current history.
func (compact) Inject(ctx context.Context, s chaos.Scope) (chaos.Heal, history.Receipt, error) {
	c, err := compactor(s.Service)
	if err != nil {
		return chaos.NothingToHeal, chaos.NothingDone(err), err
	}
	receipt, err := chaos.OnEach(s.On, func(n chaos.Node) (history.Receipt, error) {
		ctx, cancel := context.WithTimeout(ctx, chaos.AskTimeout)
		defer cancel()
		acting, done := clock.Act(ctx)
		to, err := c.Compact(acting, n.Name())
		done()
		if err != nil {
			return history.Receipt{}, fmt.Errorf("compact %s: %w", n.Name(), err)
		}
		evidence := fmt.Sprintf("%s: compacted to revision %d", n.Name(), to)
		defer clock.Waits(ctx, chaos.AskTimeout)()
		gone, err := c.Forgotten(ctx, n.Name(), to-1)
		switch {
		case err != nil:
			return chaos.Seen(history.Indeterminate, 0, evidence+"; a read of an earlier revision: "+err.Error()), nil
		case gone == "":
			return chaos.Seen(history.NotInstalled, 0, evidence+"; an earlier revision can still be read"), nil
		}
		return chaos.Seen(history.Installed, 0, evidence+"; an earlier revision: "+gone), nil
	})
	nothingLeft := func(context.Context) (history.Receipt, error) {
		return chaos.Seen(history.Installed, 0, "a compaction is permanent"), nil
	}
	return nothingLeft, receipt, err
}
