package links

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"

	"github.com/lockquake/lockquake/chaos"
)

// The capabilities of link faults.
const (
	CanFilter chaos.Capability = "filter" // Filterer and LinkProber
	CanHold   chaos.Capability = "hold"   // Filterer, whose rules may hold packets
)

// Filterer is a node that can count and block packets at its own end of its links, including those of existing
// connections. The harness's own requests to the node never pass a link between nodes.
type Filterer interface {
	// Filter installs rules under a key that is unique in the run. They outlive a restart of the node; if the node is
	// down, they are installed when it starts. After an error Unfilter must still be called.
	Filter(ctx context.Context, key string, rules []Rule) error
	// Filtered returns what the rules have met so far.
	Filtered(ctx context.Context, key string) (Filtered, error)
	// Unfilter removes the rules and reports what is left.
	Unfilter(ctx context.Context, key string) (Filtered, error)
}

// LinkProber is a node whose links can be probed.
type LinkProber interface {
	// ProbeLinks sends datagrams to and from the peers, from sockets outside the nodes' own processes. p.Peers has the
	// ports of the peers in their order; the node fills in the addresses.
	ProbeLinks(ctx context.Context, peers []chaos.Node, p ProbeArgs) (ProbeResult, error)
}

// goneText describes what the rules had met and their removal; failed is the error of the removal.
func goneText(c Filtered, failed error) string {
	text := fmt.Sprintf("the rules matched %d packets", c.Packets)
	if failed == nil {
		text += " and are gone, according to the kernel's lists"
	}
	if c.Others > 0 {
		text += fmt.Sprintf("; %d filters of other link faults are active at its ends", c.Others)
	}
	return text
}

// addMet adds the counts of another node's rules.
func addMet(sum *Filtered, other Filtered) {
	sum.Packets, sum.Held = sum.Packets+other.Packets, sum.Held+other.Held
	if other.Shaped == nil {
		return
	}
	if sum.Shaped == nil {
		sum.Shaped = &Shaped{Engine: other.Shaped.Engine}
	}
	s, o := sum.Shaped, other.Shaped
	s.Waiting, s.Passed, s.Lost, s.Corrupted, s.Dropped = s.Waiting+o.Waiting, s.Passed+o.Passed, s.Lost+o.Lost,
		s.Corrupted+o.Corrupted, s.Dropped+o.Dropped
	s.LateMid, s.LateP99, s.LateMax = max(s.LateMid, o.LateMid), max(s.LateP99, o.LateP99), max(s.LateMax, o.LateMax)
}

// linkKeys numbers the injections of link faults, so that their keys differ.
var linkKeys atomic.Uint64

func linkKey(fault string) string { return fault + "-" + strconv.FormatUint(linkKeys.Add(1), 10) }

// Direction selects the packets of a link, as seen from the targets.
type Direction string

// The directions.
const (
	Both Direction = "both"
	Out  Direction = "out" // what the targets send to the others
	In   Direction = "in"  // what the others send to the targets
)

func (d Direction) check() error {
	if !slices.Contains([]Direction{Both, Out, In}, d) {
		return fmt.Errorf("direction is %q: want both, out (packets from the targets) or in (packets to them)",
			string(d))
	}
	return nil
}

func (d Direction) out() bool { return d != In }
func (d Direction) in() bool  { return d != Out }

// Through has the keys that limit link faults to some connections.
type Through struct {
	// Port is the port at the targets' end; if set, only packets from and to it are hit.
	Port chaos.PortName `yaml:"port"`
	// PeerPort is the same for the peers' end.
	PeerPort chaos.PortName `yaml:"peer_port"`
}

// Ports names the ports that the ends must have.
func (t Through) Ports() (own, far chaos.PortName) { return t.Port, t.PeerPort }
