package clock

import (
	"context"
	"fmt"
	"time"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/history"
)

// clockJump steps a node's wall clock forward or back, as an operator, a bad time server or a resumed virtual machine
// would. The monotonic clock is not touched, so a service that measures its leases by it does not notice.
type clockJump struct {
	// By is how far the clock jumps, backward if negative. It is a string because durations in scenarios are never
	// negative.
	By string `yaml:"by"`
	// How is ByVDSO (the default) or ByFaketime.
	How string `yaml:"how"`
}

const (
	minJump = 50 * time.Millisecond // a receipt cannot tell less
	maxJump = 10 * 365 * 24 * time.Hour
)

func clockJumpKind() chaos.Kind {
	return chaos.Kind{
		Name: "clock-jump", Place: 9,
		Doc: "Sets the target's wall clock forward by `by` (+60s), or back (-1h), until the heal. Its monotonic " +
			"clock is unaffected. Receipt: the server's own clock, read over its own protocol, against this " +
			"machine's.",
		Needs:   []chaos.Capability{CanClock},
		Try:     []string{"by: +60s", "by: +60s, how: faketime"},
		Lasting: true,
		Sample:  "{by: 10s..120s}",
		Began:   "clock moved by {by}", Ended: "clock set right",
		New: func(decode func(any) error) (chaos.Fault, error) {
			f := clockJump{How: ByVDSO}
			if err := decode(&f); err != nil {
				return nil, err
			}
			by, err := time.ParseDuration(f.By)
			if err != nil || by.Abs() < minJump || by.Abs() > maxJump {
				return nil, fmt.Errorf("by of clock-jump is %q: want %s to 10 years, forward (+60s) or back (-1h)",
					f.By, minJump)
			}
			if f.How != ByVDSO && f.How != ByFaketime {
				return nil, fmt.Errorf("how of clock-jump is %q: want %s or %s", f.How, ByVDSO, ByFaketime)
			}
			return clockFault{shift: Shift{Jump: by, How: f.How}, prove: jumped}, nil
		},
	}
}

// jumped judges whether a clock shows the time asked for, and would not without the jump.
func jumped(ctx context.Context, w *watched) (verdict, error) {
	ahead, want, err := w.compare(ctx)
	if err != nil {
		return verdict{}, err
	}
	text := fmt.Sprintf("by %s ahead of this machine by %s, want %s", w.account(), ahead, want)
	if w.before.asked() {
		text += fmt.Sprintf(", previously %s", w.before.ahead())
	}
	without := span{want.low - w.shift.Jump, want.high - w.shift.Jump}
	switch {
	case !ahead.meets(want):
		return verdict{history.NotInstalled, text + ": the clock did not jump"}, nil
	case ahead.meets(without):
		return verdict{history.Indeterminate, text + ": this does not prove the jump"}, nil
	}
	return verdict{history.Installed, text}, nil
}
