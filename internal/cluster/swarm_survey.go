package cluster

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/moby/moby/client"

	"github.com/lockquake/lockquake/chaos"
	wall "github.com/lockquake/lockquake/chaos/clock"
	"github.com/lockquake/lockquake/chaos/disk"
	"github.com/lockquake/lockquake/chaos/links"
	"github.com/lockquake/lockquake/chaos/process"
	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/internal/node"
)

// Surveyor is a provider with several hosts, which can say what each of them is good for.
type Surveyor interface {
	// Survey looks at all hosts, by a node on each that listens at port "probe" and is thrown away.
	Survey(ctx context.Context, listener func(name string) node.Spec) ([]HostSeen, error)
}

// HostSeen is what was found of one host.
type HostSeen struct {
	Name       string            `json:"name"`
	Engine     string            `json:"engine"` // its version
	Kernel     string            `json:"kernel"`
	Processors int               `json:"processors"`
	Supervisor bool              `json:"supervisor"` // the supervisor talks to its engine without a relay
	Cannot     map[string]string `json:"cannot"`     // capability -> why it cannot be delivered there; empty: all that was asked about can
	Agent      string            `json:"agent"`      // where it runs, or why it does not
	Clock      ClockSeen         `json:"clock"`
	Links      []HostLink        `json:"links"` // to every other host
}

// ClockSeen is how a host's monotonic clock stands to the supervisor's.
type ClockSeen struct {
	Offset time.Duration `json:"offset_ns"` // to be added to the host's times
	Error  time.Duration `json:"error_ns"`  // by which that may be wrong
}

// HostLink is the way to another host.
type HostLink struct {
	To        string       `json:"to"`
	RoundTrip links.Spread `json:"round_trip"`
	Sent      int          `json:"sent"` // datagrams
	Arrived   int          `json:"arrived"`
}

// surveyed are the capabilities that hosts may differ in.
var surveyed = []chaos.Capability{
	chaos.CanPause, process.CanKill, process.CanFreeze, links.CanFilter, links.CanHold, links.CanShape, links.CanNetem, links.CanThrottle, wall.CanClock,
	disk.CanData, disk.CanHoldSyncs, CanLimit,
}

// Survey makes a run of one node on each host.
func (s *swarm) Survey(ctx context.Context, listener func(name string) node.Spec) ([]HostSeen, error) {
	hosts, err := s.hosts(ctx)
	if err != nil {
		return nil, err
	}
	logs, err := os.MkdirTemp("", "lockquake-doctor-")
	if err != nil {
		return nil, fmt.Errorf("make a directory for the logs of hosts: %w", err)
	}
	defer func() { _ = os.RemoveAll(logs) }()
	r := Request{Run: fmt.Sprintf("d%x", os.Getpid()), LogDir: logs, Agent: true, Log: s.log}
	for i := range hosts {
		r.Specs = append(r.Specs, listener(fmt.Sprintf("host-%d", i+1)))
	}
	c, err := s.Open(ctx, r)
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.Close(ctx) }()
	if err := StartAll(ctx, c.Nodes); err != nil {
		return nil, err
	}
	var out []HostSeen
	for i, m := range c.members {
		seen, err := m.look(ctx)
		if err != nil {
			return nil, fmt.Errorf("host %s: %w", m.name, err)
		}
		if seen.Links, err = linksOf(ctx, c, i); err != nil {
			return nil, fmt.Errorf("the links of host %s: %w", m.name, err)
		}
		out = append(out, seen)
	}
	return out, c.Close(ctx)
}

// look asks the host's engine and agent.
func (m *member) look(ctx context.Context) (HostSeen, error) {
	answer, err := m.run.api.Info(ctx, client.InfoOptions{})
	if err != nil {
		return HostSeen{}, err
	}
	seen := HostSeen{
		Name: m.name, Engine: answer.Info.ServerVersion, Kernel: answer.Info.KernelVersion, Processors: answer.Info.NCPU,
		Supervisor: m.local, Agent: m.of.Describe[m.run.agentName], Cannot: map[string]string{},
	}
	if a := m.run.agent; a != nil && a.Clock().Separate() {
		now := clock.Now()
		seen.Clock = ClockSeen{Offset: time.Duration(now - a.Clock().Own(now)), Error: time.Duration(a.Clock().Error(now))}
	}
	for _, c := range surveyed {
		if err := m.run.Offers(c, node.Server); err != nil {
			seen.Cannot[string(c)] = err.Error()
		}
	}
	return seen, nil
}

// linksOf measures the round trips from one host's node to all others.
func linksOf(ctx context.Context, c *Cluster, of int) ([]HostLink, error) {
	var peers []chaos.Node
	for i, n := range c.Nodes {
		if i != of {
			peers = append(peers, n)
		}
	}
	if len(peers) == 0 {
		return nil, nil
	}
	measured, err := c.Nodes[of].MeasureLinks(ctx, peers, links.MeasureArgs{
		Count: 100, Every: time.Millisecond, Out: true, Echo: true, Patience: 500 * time.Millisecond, Peers: make([]links.ProbeEnd, len(peers)),
	})
	if err != nil {
		return nil, err
	}
	var out []HostLink
	for i, l := range measured {
		to := c.members[slices.Index(c.Nodes, peers[i].(*Node))].name
		out = append(out, HostLink{To: to, RoundTrip: l.Out.Round, Sent: l.Out.Sent, Arrived: l.Out.Arrived})
	}
	return out, nil
}
