package links

import (
	"fmt"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/history"
)

// loss drops a share of the packets of links. TCP retransmits them, which a service sees as delays of 200 ms and more.
type loss struct {
	OnShare `yaml:",inline"`
}

func lossKind() chaos.Kind {
	return chaos.Kind{
		Name: "loss", Place: 13,
		Doc: "Drops a share of the packets between the targets and others. Receipt: some of the numbered datagrams " +
			"over each link do not arrive.",
		Try:   []string{"share: 30%", "share: 30%, engine: queue"},
		Needs: []chaos.Capability{CanShape}, PeerNeeds: []chaos.Capability{CanShape}, Lasting: true, Counts: true,
		Sample: "{share: 5%..40%}",
		New: func(decode func(any) error) (chaos.Fault, error) {
			f := loss{OnShare: OnShare{OnLinks: everyLink()}}
			if err := decode(&f); err != nil {
				return nil, err
			}
			return f.shapeFault(), f.checkShare("loss", 1)
		},
	}
}

func (f loss) shapeFault() shapeFault {
	return shapeFault{
		OnLinks: f.OnLinks, kind: "loss", by: f.engines(), needs: f.capabilities(),
		shaping: Shaping{Loss: float64(f.Share), Correlation: float64(f.Correlation)},
		gauge:   enoughFor(f.Share, f.Correlation),
		effect:  effect{shows: f.shows, text: f.text, noisy: tally(lost).noisy(f.Share)},
	}
}

func (f loss) shows(l shapedLane) history.ReceiptStatus {
	return tally(lost).status(l, l.share(f.Share), f.Correlation)
}

func (f loss) text(lanes []shapedLane) string {
	return fmt.Sprintf("%s are lost now (requested: %v), %s before", tally(lost).now(lanes), f.Share,
		tally(lost).before(lanes))
}
