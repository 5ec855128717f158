package links

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockquake/lockquake/chaos"
)

// The capabilities of faults that shape links. A provider tests them before it offers them.
const (
	CanShape    chaos.Capability = "shape"    // Shaper, by whatever engine
	CanNetem    chaos.Capability = "netem"    // Shaper, by the kernel's own
	CanQueue    chaos.Capability = "queue"    // Shaper, by the agent
	CanThrottle chaos.Capability = "throttle" // Shaper, by the kernel's token bucket
)

// atSender reports whether the engine works at the sender's end of a link.
func atSender(e Engine) bool { return e != Queue }

// engineText names an engine in a receipt.
func engineText(e Engine) string {
	switch e {
	case Netem:
		return "netem of the kernel"
	case Queue:
		return "the agent's queue"
	case TBF:
		return "the kernel's token bucket"
	}
	return string(e)
}

// Shaper is a node that can delay packets, drop them and so on at its own end of its links.
type Shaper interface {
	// Engines tests the engines and returns for each why it is unavailable; "" if it is available.
	Engines(ctx context.Context) (Engines, error)
	// Shape installs rules under a key that is unique in the run, and shapes their packets. Unfilter undoes it. Like a
	// filter, it outlives a restart of the node.
	Shape(ctx context.Context, key string, rules []Rule, s Shaping) error
	// MeasureLinks sends numbered datagrams over links, from sockets outside the nodes' own processes. The peers are as
	// in ProbeLinks.
	MeasureLinks(ctx context.Context, peers []chaos.Node, m MeasureArgs) ([]MeasuredLink, error)
}

// shapedText describes the counts of an engine.
func shapedText(s *Shaped) string {
	if s == nil {
		return "its engine reports nothing"
	}
	text := fmt.Sprintf("it forwarded %d packets", s.Passed)
	for _, c := range []struct {
		n    uint64
		what string
	}{{s.Lost, "lost"}, {s.Corrupted, "corrupted"}, {s.Dropped, "dropped by the kernel"}, {uint64(s.Waiting), "wait"}} {
		if c.n > 0 {
			text += fmt.Sprintf(", %d %s", c.n, c.what)
		}
	}
	if s.LateMax > 0 {
		text += fmt.Sprintf("; late by %v (median), %v (99 %%), %v (maximum)", rounded(s.LateMid),
			rounded(s.LateP99), rounded(s.LateMax))
	}
	return text
}

// rounded drops digits that no reader needs.
func rounded(d time.Duration) time.Duration {
	if d.Abs() < time.Millisecond {
		return d.Round(time.Microsecond)
	}
	return d.Round(10 * time.Microsecond)
}

// Share is a part of packets, written in percent.
type Share float64

// UnmarshalYAML takes "30%" and "0.5%".
func (s *Share) UnmarshalYAML(unmarshal func(any) error) error {
	var text string
	if err := unmarshal(&text); err == nil {
		number, ok := strings.CutSuffix(text, "%")
		v, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		if ok && err == nil && !math.IsNaN(v) && v >= 0 && v <= 100 {
			*s = Share(v / 100)
			return nil
		}
	}
	return fmt.Errorf("want a share in percent, such as 30%% or 0.5%%")
}

func (s Share) String() string { return strconv.FormatFloat(float64(s)*100, 'g', 3, 64) + "%" }

// between rejects a share that is missing, or too small or large for a receipt.
func (s Share) between(fault string, low, high Share) error {
	if s < low || s > high {
		return fmt.Errorf("%s needs share: %v to %v of the packets", fault, low, high)
	}
	return nil
}

// The smallest share that a receipt can distinguish from none in its time.
const leastShare Share = 0.001

// OnLinks has the keys of all faults that shape links.
type OnLinks struct {
	// To is the other side: selectors or names; default all other nodes of the run.
	To chaos.Names `yaml:"to"`
	// Direction is both, out (from the targets) or in (to the targets).
	Direction Direction `yaml:"direction"`
	// Port and PeerPort limit the fault to packets of a port at the targets' and at the peers' end.
	Port     chaos.PortName `yaml:"port"`
	PeerPort chaos.PortName `yaml:"peer_port"`
	// Engine is auto, or the engine to use.
	Engine Engine `yaml:"engine"`
}

// OnShare has the keys of faults that hit a share of the packets.
type OnShare struct {
	OnLinks `yaml:",inline"`
	// Share is the share of packets that are hit.
	Share Share `yaml:"share"`
	// Correlation is how much the outcome of one packet follows that of the one before it: losses then come in bursts.
	Correlation Share `yaml:"correlation"`
}

// checkShare checks the keys of a fault whose share is at most the given one.
func (o OnShare) checkShare(fault string, most Share) error {
	if err := o.Share.between(fault, leastShare, most); err != nil {
		return err
	}
	return errors.Join(o.check(), o.Correlation.correlates())
}

func everyLink() OnLinks {
	return OnLinks{To: chaos.Names{chaos.Rest}, Direction: Both, Engine: anyEngine}
}

// anyEngine uses netem if the kernel has it, else the agent's queue.
const anyEngine Engine = "auto"

func (o OnLinks) check() error {
	if !slices.Contains([]Engine{anyEngine, Netem, Queue}, o.Engine) {
		return fmt.Errorf("engine is %q: want auto, netem (of the kernel) or queue (of the agent)", string(o.Engine))
	}
	return o.Direction.check()
}

// Far names the other side.
func (o OnLinks) Far() chaos.Names { return o.To }

// Ports names the ports that the ends must have.
func (o OnLinks) Ports() (own, far chaos.PortName) { return o.Port, o.PeerPort }

// engines returns the allowed engines, the best first.
func (o OnLinks) engines() []Engine {
	if o.Engine == anyEngine {
		return []Engine{Netem, Queue}
	}
	return []Engine{o.Engine}
}

// capabilities returns what the choice of an engine requires of the targets.
func (o OnLinks) capabilities() []chaos.Capability {
	switch o.Engine {
	case Netem:
		return []chaos.Capability{CanNetem}
	case Queue:
		return []chaos.Capability{CanQueue}
	}
	return []chaos.Capability{CanShape}
}
