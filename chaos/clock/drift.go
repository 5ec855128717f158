package clock

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/clock"
)

// clockDrift makes a node's wall clock run fast or slow. A clock without a time server drifts by some 1e-5, the clock
// of a virtual machine short of CPU time by much more. The monotonic clock is not touched. The heal sets the clock
// right at once.
type clockDrift struct {
	// Rate is how many seconds the clock advances per second.
	Rate float64 `yaml:"rate"`
}

const (
	minGain = 0.005 // a receipt has no time to see less
	maxRate = 100

	// A rate is measured between two readings seeDrift/gain apart, within the bounds.
	seeDrift      = 80 * time.Millisecond
	shortestDrift = 500 * time.Millisecond
	longestDrift  = 12 * time.Second
)

func clockDriftKind() chaos.Kind {
	return chaos.Kind{
		Name: "clock-drift", Place: 10,
		Doc: "Runs the target's wall clock at `rate` (1.1 is 10 % too fast, 0.5 half as fast) until the heal, which " +
			"corrects it. Its monotonic clock is unaffected. Receipt: two readings of the server's own clock, over " +
			"its own protocol, against this machine's.",
		Needs:   []chaos.Capability{CanClock},
		Try:     []string{"rate: 1.5"},
		Lasting: true,
		Sample:  "{rate: 1.05..1.5}",
		New: func(decode func(any) error) (chaos.Fault, error) {
			f := clockDrift{Rate: 1}
			if err := decode(&f); err != nil {
				return nil, err
			}
			if gain := math.Abs(f.Rate - 1); !(f.Rate > 0 && f.Rate <= maxRate && gain >= minGain) {
				return nil, fmt.Errorf("rate of clock-drift is %g: want more than 0 and at most %d, and at least %g away from 1: a smaller drift cannot be measured in time", f.Rate, maxRate, minGain)
			}
			return clockFault{shift: Shift{Gain: f.Rate - 1, How: ByVDSO}, prove: drifted}, nil
		},
	}
}

// drifted judges whether a clock runs at the rate asked for, and would not without the drift.
func drifted(ctx context.Context, w *watched) (verdict, error) {
	from, err := w.ask(ctx)
	if err != nil {
		return verdict{}, err
	}
	gain := w.shift.Gain
	apart := time.Duration(float64(seeDrift) / math.Abs(gain))
	if err := clock.Sleep(ctx, min(max(apart, shortestDrift), longestDrift)); err != nil {
		return verdict{}, err
	}
	to, err := w.ask(ctx)
	if err != nil {
		return verdict{}, err
	}
	low, high := rate(from, to)
	want := 1 + w.said.Gain
	text := fmt.Sprintf("by %s it ran at %.4f to %.4f for %v, want %.4f", w.account(), low, high,
		time.Duration(to.ToMono-from.FromMono).Round(time.Millisecond), want)
	switch {
	case want < low || want > high:
		return verdict{history.NotInstalled, text + ": it does not"}, nil
	case want-gain >= low && want-gain <= high:
		return verdict{history.Indeterminate, text + ": this does not prove the drift"}, nil
	}
	return verdict{history.Installed, text}, nil
}
