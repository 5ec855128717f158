package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/moby/moby/client"

	"github.com/lockquake/lockquake/chaos"
	wall "github.com/lockquake/lockquake/chaos/clock"
	"github.com/lockquake/lockquake/chaos/links"
	"github.com/lockquake/lockquake/chaos/process"
	"github.com/lockquake/lockquake/internal/agent"
	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/internal/cluster/executable"
	"github.com/lockquake/lockquake/internal/cluster/imagestore"
	"github.com/lockquake/lockquake/internal/cluster/limits"
	"github.com/lockquake/lockquake/internal/cluster/netspace"
	"github.com/lockquake/lockquake/internal/cluster/processes"
	"github.com/lockquake/lockquake/internal/node"
)

// ProbeResult is the answer to one question of `lockquake doctor`.
type ProbeResult struct {
	Name      string `json:"name"`
	Available bool   `json:"available"`
	Reason    string `json:"reason"` // what was found, or why it is unavailable and what would help
}

// Probe tests what this machine can deliver with the mechanisms of an agent. images are the keys of the images that
// nodes may need. If an engine answers, Probe starts one container for a moment. It leaves nothing behind.
func Probe(ctx context.Context, m agent.Mechanisms, images ...string) []ProbeResult {
	out := probeEngine(ctx, images)
	add := func(name, found string, err error) { out = append(out, probed(name, found, err)) }
	if os.Geteuid() == 0 {
		add("root", "runs as root", nil)
	} else {
		add("root", "", fmt.Errorf("runs as user %d: the local provider puts all nodes on the loopback address",
			os.Geteuid()))
	}
	add("network-namespaces", "made one", netspace.Probe())
	add("packet-filter", "made a table and a queue, and removed them", m.Supports(links.DoFilter))
	add("tcp-reset", "made a connection, and reset it", m.Supports(links.DoReset))
	add("sch_netem", "the kernel has it", netspace.ProbeNetem())
	found, err := processes.ProbePtrace()
	add("ptrace", found, err)
	found, err = limits.Probe()
	add("limits", found, err)
	out = append(out, probeProgram(ctx, "redis-server"))
	path, err := executable.Self("")
	if err == nil {
		err = executable.Static(path)
	}
	add("static-binary", path, err)
	return out
}

func probed(name, found string, err error) ProbeResult {
	if err != nil {
		return ProbeResult{Name: name, Reason: strings.Join(strings.Fields(err.Error()), " ")}
	}
	return ProbeResult{Name: name, Available: true, Reason: found}
}

// probeProgram looks for a server of the local provider.
func probeProgram(ctx context.Context, name string) ProbeResult {
	path, err := executable.Find(name, "")
	if err != nil {
		return probed(name, "", err)
	}
	version, err := exec.CommandContext(ctx, path, "--version").Output()
	return probed(name, path+": "+strings.TrimSpace(string(version)), err)
}

// probeEngine asks the engine, looks for the images, and tries to start an agent.
func probeEngine(ctx context.Context, images []string) []ProbeResult {
	d, err := newDocker(DockerOptions{})
	if err != nil {
		return []ProbeResult{
			probed("engine", "", err),
			{Name: "agent", Reason: "no engine answers; the local provider's agent runs as a child process"},
		}
	}
	out := []ProbeResult{probed("engine", fmt.Sprintf("%s at %s, API %s", d.version.Version, d.api.DaemonHost(),
		d.api.ClientVersion()), nil)}
	limits, err := d.limits()
	out = append(out, probed("engine-limits", limits, err))
	for _, key := range images {
		ref := imagestore.Project(key)
		if info, err := d.api.ImageInspect(ctx, ref); err != nil {
			out = append(out, ProbeResult{Name: "image-" + key, Reason: ref +
				" is not there: run `lockquake images`, or name another with --image " + key + "=IMAGE"})
		} else {
			out = append(out, probed("image-"+key, ref+" "+info.ID, nil))
		}
	}
	// fails if it does not share the engine's pid namespace
	agentErr := d.withAgent(ctx, func(*agent.Client) error { return nil })
	return append(out, probed("agent", "started in the engine's pid namespace with "+
		strings.Join(agentCapabilities, ", "), agentErr))
}

// Surveyor is a provider with several hosts that can report the capabilities of each.
type Surveyor interface {
	// Survey checks all hosts, with a temporary node on each that listens at port "probe". Hosts found unfit get no
	// nodes from then on.
	Survey(ctx context.Context, listener func(name string) node.Spec) ([]HostSeen, error)
}

// HostSeen is the survey of one host.
type HostSeen struct {
	Name string `json:"name"`
	// why it gets no nodes; empty fields are then unknown
	Lacks      string `json:"lacks,omitempty"`
	Engine     string `json:"engine"` // its version
	Kernel     string `json:"kernel"`
	Processors int    `json:"processors"`
	Supervisor bool   `json:"supervisor"` // the supervisor talks to its engine without a relay
	// capability -> why it is unavailable there; empty: all surveyed ones are available
	Cannot map[string]string `json:"cannot"`
	Agent  string            `json:"agent"` // where it runs, or why it does not
	Clock  *ClockSeen        `json:"clock"` // null: not measured
	Links  []HostLink        `json:"links"` // to every other host
}

// ClockSeen is the offset of a host's monotonic clock from the supervisor's. If it is the supervisor's, both fields are
// 0.
type ClockSeen struct {
	Offset time.Duration `json:"offset_ns"` // to be added to the host's times
	Error  time.Duration `json:"error_ns"`  // bound of the error of Offset
}

// HostLink is the way to another host.
type HostLink struct {
	To        string       `json:"to"`
	RoundTrip links.Spread `json:"round_trip"`
	Sent      int          `json:"sent"` // datagrams
	Arrived   int          `json:"arrived"`
	// maximum error when times of the two hosts are compared: the sum of their clocks' errors
	ClockError time.Duration `json:"clock_error_ns"`
}

// surveyed are the capabilities that hosts are asked about.
var surveyed = []chaos.Capability{
	links.CanFilter, links.CanHold, links.CanReset, links.CanShape, links.CanNetem, links.CanQueue, links.CanThrottle,
	wall.CanClock, CanLimit,
}

// Survey makes a run of one node on each host.
func (s *swarm) Survey(ctx context.Context, listener func(name string) node.Spec) (out []HostSeen, err error) {
	hosts, _, err := s.hosts(ctx)
	if err != nil {
		return nil, err
	}
	r := Request{Run: fmt.Sprintf("d%x", os.Getpid()), Agent: true}
	for i := range hosts {
		r.Specs = append(r.Specs, listener(fmt.Sprintf("host-%d", i+1)))
	}
	err = s.visit(ctx, r, func(run *swarmRun, _ *Cluster) error {
		for _, h := range run.away {
			out = append(out, HostSeen{Name: h.name, Supervisor: h.local, Lacks: "it does not take part: " + h.away})
		}
		found := make([]HostSeen, len(run.members))
		_ = run.each(func(i int, m *member) error {
			found[i] = m.look(ctx)
			return nil
		})
		for i := range found {
			if found[i].Lacks == "" {
				found[i].measure(ctx, run, found, i)
			}
		}
		s.unfit = map[string]string{}
		_ = run.each(func(i int, m *member) error {
			if found[i].Lacks == "" {
				found[i].try(ctx, m.of.Nodes[0])
			}
			return nil
		})
		for i, m := range run.members {
			if found[i].Lacks != "" {
				s.unfit[m.id] = "doctor found it unfit: " + found[i].Lacks
			}
		}
		out = append(out, found...)
		return nil
	})
	slices.SortFunc(out, func(a, b HostSeen) int { return strings.Compare(a.Name, b.Name) })
	return out, err
}

// look starts the host's node, and queries its engine and its agent.
func (m *member) look(ctx context.Context) HostSeen {
	seen := HostSeen{Name: m.name, Supervisor: m.local, Cannot: map[string]string{}}
	err := m.lacks
	if err == nil {
		seen.Agent = m.of.Describe[m.run.agentName]
		err = seen.ask(ctx, m)
	}
	if err == nil {
		err = StartAll(ctx, m.of.Nodes)
	}
	if err != nil {
		seen.Lacks = err.Error()
	}
	return seen
}

func (h *HostSeen) ask(ctx context.Context, m *member) error {
	answer, err := m.run.engine.api.Info(ctx, client.InfoOptions{})
	if err != nil {
		return fmt.Errorf("ask its engine: %w", err)
	}
	h.Engine, h.Kernel, h.Processors = answer.Info.ServerVersion, answer.Info.KernelVersion, answer.Info.NCPU
	a := m.run.agent
	if a == nil {
		return chaos.Unavailable{What: "the agent", Reason: h.Agent}
	}
	h.Clock = &ClockSeen{}
	if now := clock.Now(); a.Clock().Separate() {
		h.Clock = &ClockSeen{
			Offset: time.Duration(now - a.Clock().Own(now)),
			Error:  time.Duration(a.Clock().Error(now)),
		}
	}
	offers := m.offers(ctx)
	for _, c := range surveyed {
		if err := offers(c, node.Server); err != nil {
			h.Cannot[string(c)] = err.Error()
		}
	}
	return nil
}

// try tests on the host's node what cannot be queried, and ends the node.
func (h *HostSeen) try(ctx context.Context, n *Node) {
	_, paused := n.Signals.Pause(ctx)
	_, resumed := n.Signals.Resume(ctx)
	frozen := errors.Join(n.Signals.Freeze(ctx), n.Signals.Thaw(ctx))
	_, killed := n.Signals.Kill(ctx)
	for c, err := range map[chaos.Capability]error{
		chaos.CanPause: errors.Join(paused, resumed), process.CanFreeze: frozen, process.CanKill: killed,
	} {
		if err != nil {
			h.Cannot[string(c)] = err.Error()
		}
	}
}

// measure sends datagrams from the host's node to those of all others.
func (h *HostSeen) measure(ctx context.Context, run *swarmRun, all []HostSeen, own int) {
	var peers []chaos.Node
	for i, m := range run.members {
		if i != own && all[i].Lacks == "" {
			peers = append(peers, m.of.Nodes[0])
			h.Links = append(h.Links, HostLink{To: m.name, ClockError: h.Clock.Error + all[i].Clock.Error})
		}
	}
	if len(peers) == 0 {
		return
	}
	measured, err := run.members[own].of.Nodes[0].Links.MeasureLinks(ctx, peers, links.MeasureArgs{
		Count: 100, Every: time.Millisecond, Out: true, Echo: true, Patience: 500 * time.Millisecond,
		Peers: make([]links.ProbeEnd, len(peers)),
	})
	if err != nil {
		h.Lacks = "its links cannot be measured: " + err.Error()
		return
	}
	for i, l := range measured {
		h.Links[i].RoundTrip, h.Links[i].Sent, h.Links[i].Arrived = l.Out.Round, l.Out.Sent, l.Out.Arrived
	}
}
