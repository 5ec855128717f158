package cluster

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"

	swarmapi "github.com/moby/moby/api/types/swarm"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/chaos/disk"
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
	hosts, err := s.hosts(ctx)
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
}

// hosts lists the hosts that may be given work, by their names.
func (s *swarm) hosts(ctx context.Context) ([]host, error) {
	list, err := s.api.NodeList(ctx, client.NodeListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list the hosts of the swarm: %w", err)
	}
	var out []host
	for _, n := range list.Items {
		if n.Spec.Availability != swarmapi.NodeAvailabilityActive || n.Status.State != swarmapi.NodeStateReady {
			s.log.Info("a host of the swarm is left out", "host", n.Description.Hostname, "state", n.Status.State, "availability", n.Spec.Availability)
			continue
		}
		out = append(out, host{id: n.ID, name: n.Description.Hostname, labels: n.Spec.Labels, local: n.ID == s.local})
	}
	slices.SortFunc(out, func(a, b host) int { return cmp.Or(strings.Compare(a.name, b.name), strings.Compare(a.id, b.id)) })
	if len(out) == 0 {
		return nil, chaos.Unavailable{What: "the swarm provider", Reason: "no host of the swarm is ready and active; see `docker node ls`"}
	}
	return out, nil
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
