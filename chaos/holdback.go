package chaos

import (
	"context"
	"errors"

	"github.com/lockquake/lockquake/history"
)

// holdBack keeps packets on their way: they have left their sender, whatever becomes of it, and arrive only at the heal. It is
// the packet that a network may delay for as long as it likes: a write of a holder who is long dead. The packets wait in the
// receiver's namespace, in a queue of its kernel. When whoever reads the queue dies, they are dropped (TCP sends them again if
// the sender still lives) and nothing is held back any more.
type holdBack struct {
	// To is who the packets are for: selectors or names.
	To      Names `yaml:"to" json:"to,omitempty"`
	Through `yaml:",inline"`
}

func holdBackKind() Kind {
	return Kind{
		Name: "hold-back",
		Doc: "Keeps the packets from the targets to others waiting in the receivers' namespaces until it is healed, and lets them go " +
			"in their order; receipt: datagrams arrived before, do not now, and wait in the kernel's queue.",
		Needs:     []Capability{CanFilter},
		PeerNeeds: []Capability{CanHold},
		Try:       []string{"to: rest"},
		Lasting:   true,
		Sample:    "{to: rest}",
		Counts:    true,
		New: func(decode func(any) error) (Fault, error) {
			f := holdBack{}
			if err := decode(&f); err != nil {
				return nil, err
			}
			if len(f.To) == 0 {
				return nil, errors.New("hold-back needs to: whom the packets are for, such as register or leader")
			}
			return f, nil
		},
	}
}

// Far names the receivers.
func (f holdBack) Far() Names { return f.To }

// Inject puts rules up at the receivers.
func (f holdBack) Inject(ctx context.Context, s Scope) (Heal, history.Receipt, error) {
	b := &block{fault: "hold-back", scope: s, direction: Out, through: f.Through, how: Hold}
	return b.inject(ctx, func(l lane) {
		b.rule(l.to, LinkRule{Peer: l.from, Port: l.toPort, PeerPort: l.fromPort, How: Hold})
	})
}
