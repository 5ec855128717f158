package links

import (
	"fmt"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/history"
)

// corrupt flips one bit in a share of the packets of links, after the checksum was computed. As with corruption on a
// wire, the receiver's kernel finds the checksum wrong and drops the packet, so a service sees losses. It does not
// produce packets that pass the checksum by chance: one in 65,536 with several flipped bits.
type corrupt struct {
	OnShare `yaml:",inline"`
}

func corruptKind() chaos.Kind {
	return chaos.Kind{
		Name: "corrupt", Place: 16,
		Doc: "Flips one bit in a share of the packets between the targets and others. Receipt: some of the numbered " +
			"datagrams over each link do not arrive, and the receiver's kernel counts wrong checksums.",
		Try:   []string{"share: 30%", "share: 30%, engine: queue"},
		Needs: []chaos.Capability{CanShape}, PeerNeeds: []chaos.Capability{CanShape}, Lasting: true, Counts: true,
		Sample: "{share: 5%..40%}",
		New: func(decode func(any) error) (chaos.Fault, error) {
			f := corrupt{OnShare: OnShare{OnLinks: everyLink()}}
			if err := decode(&f); err != nil {
				return nil, err
			}
			return f.shapeFault(), f.checkShare("corrupt", 1)
		},
	}
}

func (f corrupt) shapeFault() shapeFault {
	return shapeFault{
		OnLinks: f.OnLinks, kind: "corrupt", by: f.engines(), needs: f.capabilities(),
		shaping: Shaping{Corrupt: float64(f.Share), Correlation: float64(f.Correlation)},
		gauge:   enoughFor(f.Share, f.Correlation),
		effect:  effect{shows: f.shows, text: f.text, noisy: tally(lost).noisy(f.Share)},
	}
}

// shows requires losses, with wrong checksums as their cause. netem flips any bit of a packet, including some that no
// checksum covers.
func (f corrupt) shows(l shapedLane) history.ReceiptStatus {
	status := tally(lost).status(l, l.share(f.Share), f.Correlation)
	if l.ways > 0 && !f.Direction.in() {
		return status // the checksum counts of external servers cannot be read
	}
	if status == history.Installed && l.is.Damaged == 0 {
		return history.Indeterminate
	}
	return status
}

func (f corrupt) text(lanes []shapedLane) string {
	seen := fmt.Sprintf("%s do not arrive now (requested: %v damaged), %s before", tally(lost).now(lanes), f.Share,
		tally(lost).before(lanes))
	if lanes[0].ways > 0 && !f.Direction.in() {
		return seen + "; wrong checksums are counted at the other end, which is not accessible"
	}
	var damaged, before uint64
	for _, l := range lanes { // one count covers all arrivals at a node
		damaged, before = max(damaged, l.is.Damaged), max(before, l.was.Damaged)
	}
	return fmt.Sprintf("%s; the receiver's kernel dropped at most %d packets with a wrong checksum, %d before", seen,
		damaged, before)
}
