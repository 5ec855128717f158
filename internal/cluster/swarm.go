package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	swarmapi "github.com/moby/moby/api/types/swarm"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"

	"github.com/lockquake/lockquake/chaos"
	wall "github.com/lockquake/lockquake/chaos/clock"
	"github.com/lockquake/lockquake/chaos/disk"
	"github.com/lockquake/lockquake/chaos/links"
	"github.com/lockquake/lockquake/chaos/process"
	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/internal/node"
)

// RelayImage is the key of the image that relays run from, for Request.Images: each host must have it, or get it from a registry.
const RelayImage = "relay"

// swarm is the provider of containers on the hosts of a Docker Swarm.
//
// The swarm gives a run two things: a network over all hosts, and a relay on each, through which the supervisor talks to that host's
// engine. The nodes themselves are plain containers in that network, as on one machine, and no tasks of services: a task cannot be
// started again with the address and the data that it had; its container is not given its standard input, nor the pid namespace of its
// host; and the swarm starts another in its place while it may still run, on a host that was cut off. Example: redis-2 is placed on host
// B. Its container is made by B's own engine, a kill and a restart of it are B's engine's too, and B's agent acts on it.
type swarm struct {
	*docker // of the manager that the supervisor talks to
	local   string
}

// NewSwarm connects to the engine that the environment names, which must be a manager of a swarm. The error is a chaos.Unavailable where
// it is none.
func NewSwarm(o DockerOptions) (Provider, error) {
	s, err := newSwarm(o)
	if err != nil {
		return nil, err
	}
	return s, nil
}

func newSwarm(o DockerOptions) (*swarm, error) {
	d, err := newDocker(o)
	if missing := (chaos.Unavailable{}); errors.As(err, &missing) {
		return nil, chaos.Unavailable{What: "the swarm provider", Reason: missing.Reason + "; nor does a manager answer whose swarm has no quorum of managers"}
	}
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), engineTimeout)
	defer cancel()
	answer, err := d.api.Info(ctx, client.InfoOptions{})
	if err != nil {
		return nil, noEngine(err)
	}
	refused := func(reason string) error {
		return chaos.Unavailable{What: "the swarm provider", Reason: "the engine at " + d.api.DaemonHost() + " " + reason}
	}
	switch of := answer.Info.Swarm; {
	case of.LocalNodeState != swarmapi.LocalNodeStateActive:
		return nil, refused("is in no swarm; `docker swarm init` makes one, or set DOCKER_HOST to a manager")
	case !of.ControlAvailable:
		return nil, refused("is no manager of its swarm; set DOCKER_HOST to one")
	default:
		return &swarm{docker: d, local: of.NodeID}, nil
	}
}

// Name returns "swarm".
func (s *swarm) Name() string { return "swarm" }

// Offers tells what every host can do, as far as it is known before the run: what the manager's engine can, but for disks of a node's own.
// A host that cannot is named by Open.
func (s *swarm) Offers(c chaos.Capability, r node.Role) error {
	if c == disk.CanCutPower && r == node.Server {
		return noDisks()
	}
	return s.docker.Offers(c, r)
}

// Prepares is that of the manager's engine, but for disks of a node's own.
func (s *swarm) Prepares(p node.Preparation, spec node.Spec, image string) error {
	if p == disk.LoopDisk {
		return noDisks()
	}
	return s.docker.Prepares(p, spec, image)
}

func noDisks() error {
	return chaos.Unavailable{What: string(disk.CanCutPower), Reason: "disks are made on the supervisor's own machine only; use --provider docker"}
}

// EngineID names the swarm and its hosts.
func (s *swarm) EngineID(ctx context.Context) (string, error) {
	manager, err := s.docker.EngineID(ctx)
	if err != nil {
		return "", err
	}
	hosts, _, err := s.hosts(ctx)
	if err != nil {
		return "", err
	}
	out := []string{"swarm", manager}
	for _, h := range hosts {
		out = append(out, h.id)
	}
	return strings.Join(out, " "), nil
}

// host is one machine of the swarm.
type host struct {
	id, name string
	labels   map[string]string
	local    bool // the supervisor's own engine runs it
	cores    int64
}

// hosts lists the hosts that may be given work, by their names, and tells of the others why they may not.
func (s *swarm) hosts(ctx context.Context) (out []host, away []string, err error) {
	list, err := s.api.NodeList(ctx, client.NodeListOptions{})
	if err != nil {
		return nil, nil, fmt.Errorf("list the hosts of the swarm: %w", err)
	}
	for _, n := range list.Items {
		if n.Spec.Availability != swarmapi.NodeAvailabilityActive || n.Status.State != swarmapi.NodeStateReady {
			away = append(away, fmt.Sprintf("%s (%s, %s)", n.Description.Hostname, n.Status.State, n.Spec.Availability))
			continue
		}
		out = append(out, host{
			id: n.ID, name: n.Description.Hostname, labels: n.Spec.Labels, local: n.ID == s.local, cores: n.Description.Resources.NanoCPUs / 1e9,
		})
	}
	slices.SortFunc(out, func(a, b host) int { return cmp.Or(strings.Compare(a.name, b.name), strings.Compare(a.id, b.id)) })
	if len(out) == 0 {
		return nil, nil, chaos.Unavailable{What: "the swarm provider", Reason: "no host of the swarm is ready and active; see `docker node ls`"}
	}
	slices.Sort(away)
	for _, h := range away {
		s.log.Info("a host of the swarm takes no part", "host", h)
	}
	return out, away, nil
}

// placeOn chooses a host for each node: all hosts that may have it, in turn. Servers come first in specs. Example: one Redis, two clients
// and a register on three hosts: redis-1 on the first, a client on each of the others, the register on the first.
func placeOn(specs []node.Spec, hosts []host, rule node.Hosts) ([]int, error) {
	servers := 0
	for _, s := range specs {
		if s.Role == node.Server {
			servers++
		}
	}
	out := make([]int, len(specs))
	for i, s := range specs {
		may, label := make([]int, 0, len(hosts)), ""
		switch s.Role {
		case node.Server:
			label = rule.Servers
		case node.Client:
			label = rule.Clients
		case node.Resource:
		}
		key, value, _ := strings.Cut(label, "=")
		for h := range hosts {
			if label == "" || hosts[h].labels[key] == value {
				may = append(may, h)
			}
		}
		number := i
		if rule.Apart && servers > 0 {
			own := min(servers, len(hosts)-1) // hosts of servers
			may = slices.DeleteFunc(may, func(h int) bool { return (h < own) != (s.Role == node.Server) })
			if s.Role != node.Server {
				number = i - servers
			}
		}
		if len(may) == 0 {
			return nil, chaos.Unavailable{What: "a host for " + s.Name, Reason: fmt.Sprintf("none of the %d hosts of the swarm may have it by hosts: %v", len(hosts), rule)}
		}
		out[i] = may[number%len(may)]
	}
	return out, nil
}

// elsewhere is the engine of another host, whose socket dial connects to.
func (s *swarm) elsewhere(of host, dial func(context.Context) (net.Conn, error)) (*docker, error) {
	o := s.options
	o.Log = s.log.With("host", of.name)
	d, err := speak(o, func(ctx context.Context, p *testcontainers.DockerProvider) error {
		transport := ownTransport()
		err := useClient(ctx, p,
			client.WithHTTPClient(&http.Client{Transport: transport, CheckRedirect: client.CheckRedirect}),
			client.WithHost("tcp://"+net.JoinHostPort(of.name, "2375")), // a name only: dial knows the way
			client.WithDialContext(func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) }))
		transport.Proxy = nil // WithHost has set that of the environment
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("the engine of host %s: %w", of.name, err)
	}
	d.lend = func(ctx context.Context, ref string) (bool, error) { return s.give(ctx, d, ref) }
	return d, nil
}

// give copies an image of the manager's engine to another, and tells whether the manager has it.
func (s *swarm) give(ctx context.Context, to *docker, ref string) (bool, error) {
	if found, err := s.hasImage(ctx, ref); !found || err != nil {
		return false, err
	}
	to.log.Info("copying image", "image", ref)
	from, err := s.api.ImageSave(ctx, []string{ref})
	if err != nil {
		return false, fmt.Errorf("read image %s: %w", ref, err)
	}
	defer func() { _ = from.Close() }()
	loaded, err := to.api.ImageLoad(ctx, from)
	if err != nil {
		return false, fmt.Errorf("copy image %s: %w", ref, err)
	}
	defer func() { _ = loaded.Close() }()
	if _, err := io.Copy(io.Discard, loaded); err != nil {
		return false, fmt.Errorf("copy image %s: %w", ref, err)
	}
	_, err = to.api.ImageInspect(ctx, ref)
	return err == nil, err
}

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
func (s *swarm) Survey(ctx context.Context, listener func(name string) node.Spec) (out []HostSeen, err error) {
	hosts, _, err := s.hosts(ctx)
	if err != nil {
		return nil, err
	}
	r := Request{Run: fmt.Sprintf("d%x", os.Getpid()), Agent: true}
	for i := range hosts {
		r.Specs = append(r.Specs, listener(fmt.Sprintf("host-%d", i+1)))
	}
	err = s.visit(ctx, r, func(run *swarmRun, c *Cluster) error {
		if err := StartAll(ctx, c.Nodes); err != nil {
			return err
		}
		for i, m := range run.members {
			seen, err := m.look(ctx)
			if err != nil {
				return fmt.Errorf("host %s: %w", m.name, err)
			}
			if seen.Links, err = run.linksOf(ctx, c.Nodes, i); err != nil {
				return fmt.Errorf("the links of host %s: %w", m.name, err)
			}
			out = append(out, seen)
		}
		return nil
	})
	return out, err
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

// linksOf measures the round trips from the node of one host to those of all others.
func (r *swarmRun) linksOf(ctx context.Context, nodes []*Node, of int) ([]HostLink, error) {
	var peers []chaos.Node
	var to []string
	for i, n := range nodes {
		if i != of {
			peers, to = append(peers, n), append(to, r.members[i].name)
		}
	}
	if len(peers) == 0 {
		return nil, nil
	}
	measured, err := nodes[of].MeasureLinks(ctx, peers, links.MeasureArgs{
		Count: 100, Every: time.Millisecond, Out: true, Echo: true, Patience: 500 * time.Millisecond, Peers: make([]links.ProbeEnd, len(peers)),
	})
	if err != nil {
		return nil, err
	}
	var out []HostLink
	for i, l := range measured {
		out = append(out, HostLink{To: to[i], RoundTrip: l.Out.Round, Sent: l.Out.Sent, Arrived: l.Out.Arrived})
	}
	return out, nil
}
