package links

import (
	"errors"
	"fmt"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/history"
)

// duplicate makes a share of the packets of links arrive twice. TCP drops the second; a datagram protocol must do so
// itself. Only the kernel's netem can duplicate: the agent's queue can only return one verdict per packet.
type duplicate struct {
	OnShare `yaml:",inline"`
}

func duplicateKind() chaos.Kind {
	return chaos.Kind{
		Name: "duplicate", Place: 14,
		Doc: "Duplicates a share of the packets between the targets and others (needs the kernel's netem). Receipt: " +
			"some of the numbered datagrams over each link arrive twice.",
		Try:   []string{"share: 30%"},
		Needs: []chaos.Capability{CanNetem}, Lasting: true, Counts: true,
		Sample: "{share: 5%..50%}",
		New: func(decode func(any) error) (chaos.Fault, error) {
			f := duplicate{OnShare: OnShare{OnLinks: everyLink()}}
			if err := decode(&f); err != nil {
				return nil, err
			}
			if f.Engine == Queue {
				return nil, errors.New("engine is queue, which cannot duplicate: it gives one verdict per packet; use netem")
			}
			return f.shapeFault(), f.checkShare("duplicate", 1)
		},
	}
}

func (f duplicate) shapeFault() shapeFault {
	return shapeFault{
		OnLinks: f.OnLinks, kind: "duplicate", by: []Engine{Netem}, needs: []chaos.Capability{CanNetem},
		shaping: Shaping{Duplicate: float64(f.Share), Correlation: float64(f.Correlation)},
		gauge:   enoughFor(f.Share, f.Correlation),
		effect:  effect{shows: f.shows, text: f.text, noisy: tally(copied).noisy(f.Share)},
	}
}

func (f duplicate) shows(l shapedLane) history.ReceiptStatus {
	return tally(copied).status(l, l.share(f.Share), f.Correlation)
}

func (f duplicate) text(lanes []shapedLane) string {
	what := "arrive twice"
	if lanes[0].ways > 0 {
		what = "are answered twice"
	}
	return fmt.Sprintf("%s %s now (requested: %v), %s before", tally(copied).now(lanes), what, f.Share,
		tally(copied).before(lanes))
}
