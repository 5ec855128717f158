package chaos

import (
	"context"

	"github.com/lockquake/lockquake/history"
)

// noop does nothing. It shows that schedule, receipts and heals work, and what a run looks like without trouble.
type noop struct{}

func noopKind() Kind {
	return Kind{
		Name:    "noop",
		Doc:     "Does nothing, and says so: for trying out a schedule.",
		Lasting: true,
		New: func(decode func(any) error) (Fault, error) {
			f := noop{}
			return f, decode(&f)
		},
	}
}

// Inject does nothing.
func (noop) Inject(_ context.Context, s Scope) (Heal, history.Receipt, error) {
	on := namesOf(s.On)
	heal := func(context.Context) (history.Receipt, error) {
		return seen(history.Installed, 0, "nothing to heal on "+on), nil
	}
	return heal, seen(history.Installed, 0, "nothing was done to "+on), nil
}
