package links

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/history"
)

// delay makes packets of links arrive later, all by the same time or, with jitter, by varying times, so that some
// overtake others. Nothing is lost.
type delay struct {
	OnLinks `yaml:",inline"`
	// By is how much later packets arrive in each affected direction.
	By time.Duration `yaml:"by"`
	// Jitter makes the delay uniform between By - Jitter and By + Jitter.
	Jitter time.Duration `yaml:"jitter"`
	// Correlation is how much the delay of one packet follows that of the one before it.
	Correlation Share `yaml:"correlation"`
}

const (
	leastDelay = time.Millisecond
	mostDelay  = 5 * time.Second
)

func delayKind() chaos.Kind {
	return chaos.Kind{
		Name: "delay", Place: 12,
		Doc: "Delays the packets between the targets and others by `by`, plus or minus `jitter`. Receipt: one-way " +
			"times and round trips of datagrams over each link, before and now.",
		Try:   []string{"by: 50ms", "by: 50ms, engine: queue"},
		Needs: []chaos.Capability{CanShape}, PeerNeeds: []chaos.Capability{CanShape}, Lasting: true, Counts: true,
		Sample: "{by: 5ms..200ms}",
		Began:  "packets delayed by {by}", Ended: "delayed no more",
		New: func(decode func(any) error) (chaos.Fault, error) {
			f := delay{OnLinks: everyLink()}
			if err := decode(&f); err != nil {
				return nil, err
			}
			switch {
			case f.By < leastDelay || f.By > mostDelay:
				return nil, fmt.Errorf("by of delay is %v: want %v to %v", f.By, leastDelay, mostDelay)
			case f.Jitter > f.By:
				return nil, fmt.Errorf("jitter is %v: want at most the delay, %v", f.Jitter, f.By)
			case f.Correlation > 0 && f.Jitter == 0:
				return nil, errors.New("correlation needs jitter")
			}
			return f.shapeFault(), errors.Join(f.check(), f.Correlation.correlates())
		},
	}
}

func (f delay) shapeFault() shapeFault {
	return shapeFault{
		OnLinks: f.OnLinks, kind: "delay", by: f.engines(), needs: f.capabilities(), longest: f.By + f.Jitter,
		shaping: Shaping{Delay: f.By, Jitter: f.Jitter, Correlation: float64(f.Correlation)},
		gauge:   MeasureArgs{Count: 100, Every: time.Millisecond, Echo: true},
		effect:  effect{shows: f.shows, text: f.text, noisy: f.noisy, complete: f.jitters},
	}
}

// shows compares the low quantiles of the times, since a busy machine does not slow down all datagrams. If the jitter
// is most of the delay, it compares the medians. If the times before varied a lot, too small a growth does not disprove
// the delay; times that are still shorter than the delay do.
func (f delay) shows(l shapedLane) history.ReceiptStatus {
	was, is := f.time(l.was), f.time(l.is)
	switch {
	case l.is.Arrived == 0, l.is.TwoClocks != l.was.TwoClocks, l.is.TwoClocks && (was == 0 || is == 0):
		return history.Indeterminate
	case is-was >= f.leastOf(l):
		return history.Installed
	case is >= f.leastOf(l) && f.noisy(l.was):
		return history.Indeterminate
	}
	return history.NotInstalled
}

// judgedJitter is the smallest jitter that is judged: a busy machine makes times vary by as much. Above
// judgedCorrelation, so few datagrams vary too little.
const (
	judgedJitter      = 2 * time.Millisecond
	judgedCorrelation = 0.5
)

// jitters judges whether a measured delay varies by at least half of what the jitter would cause. Of uniform times over
// 2 jitters, 90 % lie within 1.8 jitters, and correlation narrows that.
func (f delay) jitters(l shapedLane) history.ReceiptStatus {
	if !f.judges() {
		return history.Installed
	}
	narrow := math.Sqrt(float64((1 - f.Correlation) / (1 + f.Correlation)))
	least := time.Duration(0.9 * narrow * float64(f.Jitter))
	was, is := l.was.OneWay.High-l.was.OneWay.Low, l.is.OneWay.High-l.is.OneWay.Low
	switch {
	case is-was >= least:
		return history.Installed
	case is >= least:
		return history.Indeterminate // they varied as much before
	}
	return history.NotInstalled
}

func (f delay) judges() bool { return f.Jitter >= judgedJitter && f.Correlation <= judgedCorrelation }

// took returns the times that show the delay: one way, or the round trip if one way would need two clocks.
func took(of Flow) Spread {
	if of.TwoClocks {
		return of.Round
	}
	return of.OneWay
}

// time returns the quantile that is compared, and least the smallest growth of it that shows the delay.
func (f delay) time(of Flow) time.Duration {
	if f.Jitter > f.By/2 {
		return took(of).Mid
	}
	return took(of).Low
}

// leastOf returns the smallest growth on a lane. For a round trip that is delayed both ways, it is more than a delay of
// one way can cause.
func (f delay) leastOf(l shapedLane) time.Duration {
	if l.is.TwoClocks {
		return time.Duration(2*f.Direction.ways()-1) * f.least()
	}
	return l.times(f.least())
}

func (f delay) least() time.Duration {
	if f.Jitter > f.By/2 {
		return f.By / 2
	}
	return (f.By - f.Jitter) / 2
}

func (f delay) noisy(was Flow) bool { return was.OneWay.High-was.OneWay.Low > f.least() }

func (f delay) text(lanes []shapedLane) string {
	more := func(l shapedLane) time.Duration { return took(l.is).Mid - took(l.was).Mid }
	what, asked := "one way takes", f.By.String()
	ways := lanes[0].ways
	switch {
	case lanes[0].is.TwoClocks:
		what, ways = "a round trip takes", f.Direction.ways()
	case ways > 0:
		what = "an answer takes"
	}
	if ways == 2 {
		asked += " each way"
	}
	text := fmt.Sprintf("%s %s more at the median (requested: %s): %s before, %s now (5 %% to 95 %%: %s)",
		what, over(lanes, more), asked, over(lanes, func(l shapedLane) time.Duration { return took(l.was).Mid }),
		over(lanes, func(l shapedLane) time.Duration { return took(l.is).Mid }),
		within(lanes, func(l shapedLane) (time.Duration, time.Duration) { return took(l.is).Low, took(l.is).High }))
	if lanes[0].is.TwoClocks {
		text += "; one-way times, which depend on two clocks, differ by " + over(lanes, oneWayDiffers)
	} else {
		text += fmt.Sprintf("; round trips %s before, %s now",
			over(lanes, func(l shapedLane) time.Duration { return l.was.Round.Mid }),
			over(lanes, func(l shapedLane) time.Duration { return l.is.Round.Mid }))
	}
	return text + "; " + arrived(lanes)
}

// oneWayDiffers returns the range of 90 % of the one-way times.
func oneWayDiffers(l shapedLane) time.Duration { return l.is.OneWay.High - l.is.OneWay.Low }
