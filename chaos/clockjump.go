package chaos

import (
	"context"
	"fmt"
	"time"

	"github.com/lockquake/lockquake/history"
)

// clockJump sets a node's wall clock forward or back at once, as an operator, a bad time server or a resumed virtual machine
// would. Its monotonic clock is not touched: a service that measures its leases by that one is not impressed.
type clockJump struct {
	// By is how far the clock goes forward, or back where it is negative.
	By time.Duration `yaml:"by" json:"by_ns"`
}

const (
	minJump = 50 * time.Millisecond // less is lost in what a receipt can tell
	maxJump = 10 * 365 * 24 * time.Hour
)

func clockJumpKind() Kind {
	return Kind{
		Name: "clock-jump",
		Doc: "Sets the target's wall clock forward by `by` (+60s), or back (-1h), until it is healed; its monotonic clock goes on. Receipt: " +
			"the server's own clock, asked over its own protocol, against this machine's.",
		Needs:   []Capability{CanClock},
		Lasting: true,
		New: func(decode func(any) error) (Fault, error) {
			f := clockJump{}
			if err := decode(&f); err != nil {
				return nil, err
			}
			if by := f.By.Abs(); by < minJump || by > maxJump {
				return nil, fmt.Errorf("by of clock-jump is %s: want %s to 10 years, forward (+60s) or back (-1h)", f.By, minJump)
			}
			return f, nil
		},
	}
}

// Inject moves the clocks and looks at them.
func (f clockJump) Inject(ctx context.Context, s Scope) (Heal, history.Receipt, error) {
	return clockFault{shift: ClockShift{Jump: f.By}, prove: jumped}.inject(ctx, s)
}

// jumped tells whether a clock is where it should be, and would not be there without the jump.
func jumped(ctx context.Context, w *watched) (verdict, error) {
	ahead, want, err := w.compare(ctx)
	if err != nil {
		return verdict{}, err
	}
	text := fmt.Sprintf("by its own account ahead of this machine by %s, want %s", ahead, want)
	if w.before.asked() {
		text += fmt.Sprintf(", before it was %s", w.before.ahead())
	}
	without := span{want.low - w.shift.Jump, want.high - w.shift.Jump}
	switch {
	case !ahead.meets(want):
		return verdict{history.NotInstalled, text + ": it did not go there"}, nil
	case ahead.meets(without):
		return verdict{history.Indeterminate, text + ": that would be true without the jump"}, nil
	}
	return verdict{history.Installed, text}, nil
}
