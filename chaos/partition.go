package chaos

import (
	"context"
	"fmt"

	"github.com/lockquake/lockquake/history"
)

// partition cuts links between its targets and other nodes by packet filter rules at both ends. The targets keep the links
// among themselves, and so do the others: it splits the run in two sides. What the harness asks of a node does not pass these
// links and goes on.
type partition struct {
	// From is the other side: selectors or names; default everybody else in the run.
	From Names `yaml:"from" json:"from,omitempty"`
	// Direction is both, out (what the targets send) or in (what is sent to them).
	Direction Direction `yaml:"direction" json:"direction,omitempty"`
	Through   `yaml:",inline"`
	// How is drop (packets vanish, and senders try again until they give up) or reject (senders are told at once).
	How string `yaml:"how" json:"how,omitempty"`
}

// Rest is everybody in the run who is not a target.
const Rest = "rest"

func partitionKind() Kind {
	return Kind{
		Name: "partition",
		Doc: "Cuts the links between the targets and others, in one direction or both, by packet filter rules at both ends; receipt: " +
			"datagrams over each link arrived before and do not now, while the target is still reached from inside.",
		Needs:   []Capability{CanFilter},
		Lasting: true,
		Counts:  true,
		New: func(decode func(any) error) (Fault, error) {
			f := partition{From: Names{Rest}, Direction: Both, How: Drop}
			if err := decode(&f); err != nil {
				return nil, err
			}
			if f.How != Drop && f.How != Reject {
				return nil, fmt.Errorf("how is %q: want drop or reject", f.How)
			}
			return f, f.Direction.check()
		},
	}
}

// Far names the other side.
func (f partition) Far() Names { return f.From }

// Inject puts rules up at both ends of every link between a target and a peer.
func (f partition) Inject(ctx context.Context, s Scope) (Heal, history.Receipt, error) {
	b := &block{fault: "partition", scope: s, direction: f.Direction, through: f.Through, how: f.How}
	return b.inject(ctx, func(l lane) {
		b.rule(l.from, LinkRule{Peer: l.to, Out: true, Port: l.fromPort, PeerPort: l.toPort, How: f.How})
		b.rule(l.to, LinkRule{Peer: l.from, Port: l.toPort, PeerPort: l.fromPort, How: f.How})
	})
}
