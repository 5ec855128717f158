package links

import (
	"fmt"
	"math"
	"time"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/history"
)

// reorder makes a share of the packets of links overtake the others, which are delayed.
type reorder struct {
	OnShare `yaml:",inline"`
	// By is how long the packets outside the share are delayed.
	By time.Duration `yaml:"by"`
}

const mostReordered Share = 0.9 // if all go at once, none overtakes another

func reorderKind() chaos.Kind {
	return chaos.Kind{
		Name: "reorder", Place: 15,
		Doc: "Lets a share of the packets between the targets and others overtake the rest, which are delayed by " +
			"`by`. Receipt: some of the numbered datagrams over each link arrive before earlier ones.",
		Try:   []string{"share: 30%", "share: 30%, engine: queue"},
		Needs: []chaos.Capability{CanShape}, PeerNeeds: []chaos.Capability{CanShape}, Lasting: true, Counts: true,
		Sample: "{share: 10%..50%}",
		New: func(decode func(any) error) (chaos.Fault, error) {
			f := reorder{OnShare: OnShare{OnLinks: everyLink()}, By: 10 * time.Millisecond}
			if err := decode(&f); err != nil {
				return nil, err
			}
			if f.By < 2*leastDelay || f.By > mostDelay {
				return nil, fmt.Errorf("by of reorder is %v: want %v to %v", f.By, 2*leastDelay, mostDelay)
			}
			return f.shapeFault(), f.checkShare("reorder", mostReordered)
		},
	}
}

// overtaking is how many datagrams are sent while one is delayed.
const overtaking = 4

func (f reorder) shapeFault() shapeFault {
	gauge := enoughFor(f.Share, f.Correlation)
	gauge.Every = min(gauge.Every, f.By/overtaking)
	return shapeFault{
		OnLinks: f.OnLinks, kind: "reorder", by: f.engines(), needs: f.capabilities(), longest: f.By,
		shaping: Shaping{Delay: f.By, Reorder: float64(f.Share), Correlation: float64(f.Correlation)},
		gauge:   gauge,
		effect:  effect{shows: f.shows, text: f.text, noisy: f.noisy},
	}
}

// shows counts the datagrams that went at once while an earlier one was delayed.
func (f reorder) shows(l shapedLane) history.ReceiptStatus {
	share := float64(f.Share)
	return tally(leapt).status(l, share*(1-math.Pow(share, overtaking)), f.Correlation)
}

// noisy: datagrams sent too late to overtake any show nothing.
func (f reorder) noisy(was Flow) bool {
	return was.OneWay.High-was.OneWay.Low > f.By || tally(leapt).noisy(f.Share)(was)
}

func (f reorder) text(lanes []shapedLane) string {
	text := fmt.Sprintf("%s arrive before an earlier one now (requested: %v undelayed), %s before; ",
		tally(leapt).now(lanes), f.Share, tally(leapt).before(lanes))
	what := "one way takes"
	switch {
	case lanes[0].is.TwoClocks:
		return text + "one-way times, which depend on two clocks, differ by " + over(lanes, oneWayDiffers)
	case lanes[0].ways > 0:
		what = "an answer takes"
	}
	return text + what + " " + within(lanes, func(l shapedLane) (time.Duration, time.Duration) {
		return l.is.OneWay.Low,
			l.is.OneWay.High
	})
}
