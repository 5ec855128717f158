package service

import (
	"context"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/history"
)

// noop does nothing. It shows that schedule, receipts and heals work, and what a run looks like without a fault.
type noop struct{}

func noopKind() chaos.Kind {
	return chaos.Kind{
		Name: "noop", Place: 1,
		Doc:     "Does nothing, to try out a schedule.",
		Lasting: true,
		Idle:    true,
		New: func(decode func(any) error) (chaos.Fault, error) {
			f := noop{}
			return f, decode(&f)
		},
	}
}

// Inject does nothing.
func (noop) Inject(_ context.Context, s chaos.Scope) (chaos.Heal, history.Receipt, error) {
	on := chaos.NamesOf(s.On)
	heal := func(context.Context) (history.Receipt, error) {
		return chaos.Seen(history.Installed, 0, "nothing to heal on "+on), nil
	}
	return heal, chaos.Seen(history.Installed, 0, "nothing was done to "+on), nil
}
