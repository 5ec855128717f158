package links

import (
	"context"
	"errors"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/history"
)

// holdBack keeps packets in flight: they have left their sender, whatever happens to it, and arrive only at the heal.
// This is the packet that a network may delay for any time, such as a write of a holder that is long dead. The packets
// wait in a kernel queue in the receiver's namespace. If the agent, which reads the queue, dies, they are dropped and
// nothing is held back any more. TCP then retransmits them if the sender still lives.
type holdBack struct {
	// To selects the receivers of the packets: selectors or names.
	To      chaos.Names `yaml:"to"`
	Through `yaml:",inline"`
}

func holdBackKind() chaos.Kind {
	return chaos.Kind{
		Name: "hold-back", Place: 8,
		Doc: "Holds the packets from the targets to others in the receivers' namespaces until the heal, then " +
			"releases them in order. Receipt: datagrams arrived before, do not now, and wait in the kernel's queue.",
		Needs:     []chaos.Capability{CanFilter},
		PeerNeeds: []chaos.Capability{CanHold},
		Try:       []string{"to: rest"},
		Lasting:   true,
		Sample:    "{to: rest}",
		Counts:    true,
		AtPeers:   true, Began: "packets to {peers} are held back", Ended: "packets are released",
		New: func(decode func(any) error) (chaos.Fault, error) {
			f := holdBack{}
			if err := decode(&f); err != nil {
				return nil, err
			}
			if len(f.To) == 0 {
				return nil, errors.New("hold-back needs to: the receiver of the packets, such as register or leader")
			}
			return f, nil
		},
	}
}

// Far names the receivers.
func (f holdBack) Far() chaos.Names { return f.To }

// Inject installs rules at the receivers.
func (f holdBack) Inject(ctx context.Context, s chaos.Scope) (chaos.Heal, history.Receipt, error) {
	b := &block{fault: "hold-back", scope: s, direction: Out, through: f.Through, how: Hold}
	return b.inject(ctx, func(l chaos.Lane) {
		b.rule(l.To, arriving(l, Hold))
	})
}
