package chaos

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// The capabilities that faults of links need.
const (
	CanFilter Capability = "filter" // Filterer and LinkProber
	CanHold   Capability = "hold"   // Filterer, whose rules may hold packets
)

// What becomes of packets that a LinkRule meets.
const (
	Drop   = "drop"   // they vanish
	Reject = "reject" // their sender is told at once
	Hold   = "hold"   // they wait in the namespace of the node that the rule stands at, and go on in order when it is taken down
)

// LinkRule is one kind of packets between a node and another, and what becomes of them.
type LinkRule struct {
	Peer     Node
	Out      bool   // packets to the peer; else those from it
	Port     int    // TCP and UDP port at the node's own end; 0: any packet
	PeerPort int    // TCP and UDP port at the peer's end; 0: any packet
	How      string // Drop, Reject, Hold or Bend
}

// LinkCount is what rules have met.
type LinkCount struct {
	Packets uint64   // by the kernel's counters
	Held    int      // packets that wait now; after Unfilter, those that were let go
	Left    []string // after Unfilter: what is left at the node that no standing fault accounts for
	Others  int      // after Unfilter: how many other filters stand at the node
	Shaped  *Shaped  // nil where nothing is shaped
}

// gone tells what rules had met and that they were taken down; failed is what went wrong with that.
func (c *LinkCount) gone(failed error) string {
	text := fmt.Sprintf("the rules had met %d packets", c.Packets)
	if failed == nil {
		text += " and are gone, by the kernel's own lists"
	}
	if c.Others > 0 {
		text += fmt.Sprintf("; of other link faults %d filters stand at its ends", c.Others)
	}
	return text
}

// add adds what another node's rules have met.
func (c *LinkCount) add(other LinkCount) {
	c.Packets, c.Held = c.Packets+other.Packets, c.Held+other.Held
	if other.Shaped == nil {
		return
	}
	if c.Shaped == nil {
		c.Shaped = &Shaped{Engine: other.Shaped.Engine}
	}
	s, o := c.Shaped, other.Shaped
	s.Waiting, s.Passed, s.Lost, s.Corrupted, s.Dropped = s.Waiting+o.Waiting, s.Passed+o.Passed, s.Lost+o.Lost, s.Corrupted+o.Corrupted, s.Dropped+o.Dropped
	s.LateMid, s.LateP99, s.LateMax = max(s.LateMid, o.LateMid), max(s.LateP99, o.LateP99), max(s.LateMax, o.LateMax)
}

// Filterer is a node at whose own end of its links packets can be counted and kept from arriving, those of existing
// connections included. What the harness asks of the node never passes a link between nodes.
type Filterer interface {
	// Filter puts up rules under a key that is unique in the run. They outlast a restart of the node: those of a node that is
	// not running are put up when it starts. Where it fails, Unfilter is still owed.
	Filter(ctx context.Context, key string, rules []LinkRule) error
	// Filtered tells what the rules have met so far.
	Filtered(ctx context.Context, key string) (LinkCount, error)
	// Unfilter takes the rules down and looks at what is left.
	Unfilter(ctx context.Context, key string) (LinkCount, error)
}

// LinkProbe asks for datagrams to be sent over links, by sockets that are no part of the nodes' own processes.
type LinkProbe struct {
	Peers    []Node
	Port     int           // at the node's end; 0: any free one
	PeerPort map[Node]int  // at a peer's end; none: any free one
	Patience time.Duration // how long an arrival is waited for, at least
	DialOut  bool          // open a TCP connection to each peer too
	DialIn   bool          // and from each
}

// LinkSeen is what was seen of the link to one peer.
type LinkSeen struct {
	Peer    Node
	Missing bool // the peer has no process, and so no end to probe
	Out, In Arrival
}

// Arrival is what became of the datagrams of one direction.
type Arrival struct {
	Arrived bool
	After   time.Duration // from the first sending to the arrival
	Sent    int
	Refused bool          // a dial was refused
	Dial    string        // its outcome in words; "" when there was none
	Took    time.Duration // of the dial
}

// LinksSeen is what was seen of a node's links.
type LinksSeen struct {
	Peers []LinkSeen // in the order of the request
	// Control says why the node could not be reached from inside its own namespace; "" when it could.
	Control string
}

// LinkProber is a node whose links can be probed.
type LinkProber interface {
	ProbeLinks(ctx context.Context, p LinkProbe) (LinksSeen, error)
}

// Ported is a node with ports that have names.
type Ported interface {
	// Port returns the number of a named port.
	Port(name string) (number int, ok bool)
}

// Linked is a fault between its targets and other nodes. Whoever injects it resolves them into Scope.Peers.
type Linked interface {
	// Far names the other nodes as the scenario did.
	Far() Names
	// Ports names the ports that the targets, and the other nodes, must have; "" where none is needed.
	Ports() (own, far PortName)
}

// Names is one word or several: targets, or other ends of links.
type Names []string

// UnmarshalYAML takes one word, or a list of them.
func (n *Names) UnmarshalYAML(unmarshal func(any) error) error {
	var value any
	if err := unmarshal(&value); err != nil {
		return err
	}
	list, ok := value.([]any)
	if !ok {
		list = []any{value}
	}
	*n = nil
	for _, v := range list {
		word, ok := v.(string)
		if !ok || word == "" {
			return errors.New("want one name, or a list of names")
		}
		*n = append(*n, word)
	}
	if len(*n) == 0 {
		return errors.New("want one name, or a list of names")
	}
	return nil
}

// PortName is a port by its number or its name at the node.
type PortName string

// UnmarshalYAML takes a number or a word.
func (p *PortName) UnmarshalYAML(unmarshal func(any) error) error {
	var value any
	if err := unmarshal(&value); err != nil {
		return err
	}
	switch v := value.(type) {
	case uint64:
		if v >= 1 && v <= math.MaxUint16 {
			*p = PortName(strconv.FormatUint(v, 10))
			return nil
		}
	case string:
		if v != "" && strings.Trim(v, "0123456789") != "" {
			*p = PortName(v)
			return nil
		}
	}
	return errors.New("want a port: a number from 1 to 65535, or its name at the node, such as client")
}

// Number returns the port's number; ok is false when it is a name.
func (p PortName) Number() (number int, ok bool) {
	number, err := strconv.Atoi(string(p))
	return number, err == nil
}

// at returns the number of the port at a node; 0 for none.
func (p PortName) at(n Node) (int, error) {
	if p == "" {
		return 0, nil
	}
	if number, ok := p.Number(); ok {
		return number, nil
	}
	if ported, ok := n.(Ported); ok {
		if number, ok := ported.Port(string(p)); ok {
			return number, nil
		}
	}
	return 0, fmt.Errorf("%s has no port %q", n.Name(), p)
}

// Counted is what an injection of a fault that counts packets hands to whoever injects it: Packets tells how many packets it
// has met since its receipt was taken.
type Counted struct {
	Packets func(ctx context.Context) (uint64, error)
}

// linkKeys numbers the injections of link faults, so that their keys differ.
var linkKeys atomic.Uint64

func linkKey(fault string) string { return fault + "-" + strconv.FormatUint(linkKeys.Add(1), 10) }

// Direction says which packets of a link are meant, as seen from the targets.
type Direction string

// The directions.
const (
	Both Direction = "both"
	Out  Direction = "out" // what the targets send to the others
	In   Direction = "in"  // what the others send to the targets
)

func (d Direction) check() error {
	if !slices.Contains([]Direction{Both, Out, In}, d) {
		return fmt.Errorf("direction is %q: want both, out (what the targets send) or in (what is sent to them)", string(d))
	}
	return nil
}

func (d Direction) out() bool { return d != In }
func (d Direction) in() bool  { return d != Out }

// Through is the keys by which the faults of links are limited to some connections.
type Through struct {
	// Port is the port at the targets' end: with it, only packets from and to that port are meant.
	Port PortName `yaml:"port" json:"port,omitempty"`
	// PeerPort is the port at the others' end, likewise.
	PeerPort PortName `yaml:"peer_port" json:"peer_port,omitempty"`
}

// Ports names the ports that the ends must have.
func (t Through) Ports() (own, far PortName) { return t.Port, t.PeerPort }
