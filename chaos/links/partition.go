package links

import (
	"context"
	"fmt"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/history"
)

// partition cuts links between its targets and other nodes with packet filter rules at both ends. It splits the run in
// two sides; nodes on the same side stay connected. The harness's requests to a node do not pass these links, so they
// still work.
type partition struct {
	// From is the other side: selectors or names; default all other nodes of the run.
	From chaos.Names `yaml:"from"`
	// Direction is both, out (from the targets) or in (to the targets).
	Direction Direction `yaml:"direction"`
	Through   `yaml:",inline"`
	// How is drop (packets vanish, and senders retry until they give up) or reject (senders get an error at once).
	How string `yaml:"how"`
}

func partitionKind() chaos.Kind {
	return chaos.Kind{
		Name: "partition", Place: 7,
		Doc: "Cuts the links between the targets and others, in one direction or both, by packet filter rules at " +
			"both ends. Receipt: datagrams over each link arrived before and do not now, while the target still " +
			"answers from inside its namespace.",
		Needs:   []chaos.Capability{CanFilter},
		Lasting: true,
		Counts:  true,
		New: func(decode func(any) error) (chaos.Fault, error) {
			f := partition{From: chaos.Names{chaos.Rest}, Direction: Both, How: Drop}
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

// Words name the direction that is cut.
func (f partition) Words() (began, ended string) {
	switch f.Direction {
	case Out:
		return "nothing gets out to {peers}", "gets out again"
	case In:
		return "nothing gets in from {peers}", "gets in again"
	default:
		return "cut off from {peers}", "connected again"
	}
}

// Far names the other side.
func (f partition) Far() chaos.Names { return f.From }

// Cuts reports whether all connections are cut; cutting one direction is enough.
func (f partition) Cuts() bool { return f.Through == Through{} }

// Inject installs rules at both ends of every link between a target and a peer.
func (f partition) Inject(ctx context.Context, s chaos.Scope) (chaos.Heal, history.Receipt, error) {
	b := &block{fault: "partition", scope: s, direction: f.Direction, through: f.Through, how: f.How}
	return b.inject(ctx, func(l chaos.Lane) {
		b.rule(l.From, leaving(l, f.How))
		b.rule(l.To, arriving(l, f.How))
	})
}
