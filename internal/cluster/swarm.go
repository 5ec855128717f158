package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/moby/moby/api/types/mount"
	swarmapi "github.com/moby/moby/api/types/swarm"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/chaos/disk"
	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/internal/cluster/imagestore"
	"github.com/lockquake/lockquake/internal/node"
	"github.com/lockquake/lockquake/internal/relay"
)

// RelayImage is the key of the relays' image in Request.Images: each host must have it, or get it from a registry.
const RelayImage = "relay"

// swarm is the provider of containers on the hosts of a Docker Swarm.
//
// The swarm gives a run two things: a network over all hosts, and a relay on each, through which the supervisor talks
// to that host's engine. The nodes themselves are plain containers in that network, as on one machine, and not tasks of
// services. A task cannot be restarted with its address and data. Its container gets neither standard input nor the pid
// namespace of its host. And the swarm replaces a task that may still run on a host that was cut off. Example: redis-2
// is placed on host B. B's own engine makes, kills and restarts its container, and B's agent acts on it.
type swarm struct {
	engine    *docker // the manager's, to which the supervisor talks
	local     string
	localName string
	unfit     map[string]string // why Survey found hosts unfit for nodes, by id; nil: not surveyed
	turns     int               // runs since the survey
}

// NewSwarm connects to the engine that the environment names, which must be a manager of a swarm. It returns a
// chaos.Unavailable if it is not.
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
		return nil, chaos.Unavailable{What: "the swarm provider", Reason: missing.Reason +
			"; a manager does not answer either if its swarm has no quorum of managers"}
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
		return chaos.Unavailable{What: "the swarm provider", Reason: "the engine at " + d.api.DaemonHost() + " " +
			reason}
	}
	switch of := answer.Info.Swarm; {
	case of.LocalNodeState != swarmapi.LocalNodeStateActive:
		return nil, refused("is not in a swarm; `docker swarm init` creates one, or set DOCKER_HOST to a manager")
	case !of.ControlAvailable:
		return nil, refused("is not a manager of its swarm; set DOCKER_HOST to one")
	}
	own, err := d.api.NodeInspect(ctx, answer.Info.Swarm.NodeID, client.NodeInspectOptions{})
	if err != nil {
		return nil, refused("does not describe its own host, which needs a quorum of managers: " +
			err.Error())
	}
	// Tasks attach the hub and nodes to the run's networks. A drained or paused manager starts no tasks: the engine
	// would wait in vain, 20 s for each container.
	if a := own.Node.Spec.Availability; a != swarmapi.NodeAvailabilityActive {
		return nil, refused(fmt.Sprintf("is on host %s with availability %q, so its containers cannot join the "+
			"networks of a run; set DOCKER_HOST to an active manager, or `docker node update --availability active "+
			"%s`", answer.Info.Name, a, answer.Info.Name))
	}
	return &swarm{engine: d, local: answer.Info.Swarm.NodeID, localName: answer.Info.Name}, nil
}

// Name returns "swarm".
func (s *swarm) Name() string { return "swarm" }

// Offers returns the capabilities that all hosts share, as known before the run: those of the manager's engine, except
// a node's own disk. Open names a host that lacks one.
func (s *swarm) Offers(c chaos.Capability, r node.Role) error {
	if c == disk.CanCutPower && r == node.Server {
		return noDisks()
	}
	return s.onManager(s.engine.Offers(c, r))
}

// onManager adds the host to an error of the manager's engine.
func (s *swarm) onManager(err error) error {
	if u := (chaos.Unavailable{}); errors.As(err, &u) && !u.Never {
		u.Reason = "host " + s.localName + ": " + u.Reason
		return u
	}
	return err
}

// Prepares asks the manager's engine. A node's own disk is refused.
func (s *swarm) Prepares(p node.Preparation, spec node.Spec, image string) error {
	if p == disk.LoopDisk {
		return noDisks()
	}
	return s.onManager(s.engine.Prepares(p, spec, image))
}

// HasImage asks the manager's engine.
func (s *swarm) HasImage(key string) error { return s.engine.HasImage(key) }

func noDisks() error {
	return chaos.Unavailable{
		What:   string(disk.CanCutPower),
		Reason: "disks are made on the supervisor's own machine only; use --provider docker",
	}
}

// EngineID names the swarm and its hosts.
func (s *swarm) EngineID(ctx context.Context) (string, error) {
	manager, err := s.engine.EngineID(ctx)
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

// swarmHost is one machine of the swarm.
type swarmHost struct {
	id, name string
	labels   map[string]string
	local    bool // host of the supervisor's own engine
	cores    int64
	away     string // why it is excluded; "": it is not
}

// text names the host, and why it is excluded.
func (h swarmHost) text() string { return h.name + " (" + h.away + ")" }

// hosts returns the hosts that may get nodes, sorted by name, and the excluded ones.
func (s *swarm) hosts(ctx context.Context) (in, away []swarmHost, err error) {
	list, err := s.engine.api.NodeList(ctx, client.NodeListOptions{})
	if err != nil {
		return nil, nil, fmt.Errorf("list the hosts of the swarm: %w", err)
	}
	for _, n := range list.Items {
		h := swarmHost{
			id: n.ID, name: n.Description.Hostname, labels: n.Spec.Labels, local: n.ID == s.local,
			cores: n.Description.Resources.NanoCPUs / 1e9,
			away:  s.unfit[n.ID],
		}
		if n.Spec.Availability != swarmapi.NodeAvailabilityActive || n.Status.State != swarmapi.NodeStateReady {
			h.away = fmt.Sprintf("%s, %s", n.Status.State, n.Spec.Availability)
		}
		if h.away != "" {
			s.engine.log.Info("a host of the swarm does not take part", "host", h.name, "why", h.away)
			away = append(away, h)
			continue
		}
		in = append(in, h)
	}
	byName := func(a, b swarmHost) int { return cmp.Or(strings.Compare(a.name, b.name), strings.Compare(a.id, b.id)) }
	slices.SortFunc(in, byName)
	slices.SortFunc(away, byName)
	return in, away, nil
}

// inTurn makes each run of doctor begin with another host, so that each host gets some of the targets.
func (s *swarm) inTurn(hosts []swarmHost) []swarmHost {
	if s.unfit == nil || len(hosts) == 0 {
		return hosts
	}
	first := s.turns % len(hosts)
	s.turns++
	return slices.Concat(hosts[first:], hosts[:first])
}

// placeOn chooses a host for each node, in turn among the allowed hosts. Servers come first in specs. Example: one
// Redis, two clients and a register on three hosts: redis-1 on the first, a client on each of the others, the register
// on the first.
func placeOn(specs []node.Spec, hosts []swarmHost, rule node.Hosts) ([]int, error) {
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
			own := min(servers, len(hosts)-1) // number of hosts for servers
			may = slices.DeleteFunc(may, func(h int) bool { return (h < own) != (s.Role == node.Server) })
			if s.Role != node.Server {
				number = i - servers
			}
		}
		if len(may) == 0 {
			return nil, chaos.Unavailable{
				What:   "a host for " + s.Name,
				Reason: fmt.Sprintf("hosts allows it on none of the %d hosts of the swarm: %v", len(hosts), rule),
			}
		}
		out[i] = may[number%len(may)]
	}
	return out, nil
}

// relayed is the result of starting the relays, by the ids of their hosts.
type relayed struct {
	at    map[string]string // addresses
	lacks map[string]error  // why it is missing
}

// startRelays starts a relay on every host except the manager's own. Except in a visit, a relay that does not start is
// an error.
func (r *swarmRun) startRelays(ctx context.Context, between string, hosts []swarmHost) (relayed, error) {
	hosts = slices.DeleteFunc(slices.Clone(hosts), func(h swarmHost) bool { return h.local })
	if len(hosts) == 0 {
		return relayed{}, nil
	}
	ref := r.request.Images[RelayImage]
	if ref == "" {
		ref = ContainerImage(node.SelfProgram)
	}
	service, err := r.makeRelays(ctx, between, ref)
	if err != nil {
		return relayed{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, relaysTimeout)
	defer cancel()
	for {
		found, err := r.relaysOf(ctx, service, between, hosts, ref)
		if err != nil {
			return found, err
		}
		starting := slices.DeleteFunc(slices.Clone(hosts),
			func(h swarmHost) bool { return found.at[h.id] != "" || found.lacks[h.id] != nil })
		waiting := len(starting) > 0 && clock.Sleep(ctx, 50*time.Millisecond) == nil
		for _, h := range starting {
			if !waiting {
				found.lacks[h.id] = chaos.Unavailable{
					What:   "the relay of host " + h.name,
					Reason: fmt.Sprintf("it does not start: %v", context.Cause(ctx)),
				}
			}
		}
		if !r.visit && len(found.lacks) > 0 {
			return found, errors.Join(slices.Collect(maps.Values(found.lacks))...)
		}
		if !waiting {
			return found, nil
		}
	}
}

// makeRelays makes the service of the relays, and returns its id.
func (r *swarmRun) makeRelays(ctx context.Context, between, ref string) (string, error) {
	key, err := r.key.Text()
	if err != nil {
		return "", err
	}
	made, err := r.manager.engine.api.ServiceCreate(ctx, client.ServiceCreateOptions{Spec: swarmapi.ServiceSpec{
		Annotations: swarmapi.Annotations{Name: r.manager.name("relays"), Labels: r.manager.owner.Labels()},
		Mode:        swarmapi.ServiceMode{Global: &swarmapi.GlobalService{}},
		// Virtual addresses need IPVS, which not every kernel has.
		EndpointSpec: &swarmapi.EndpointSpec{Mode: swarmapi.ResolutionModeDNSRR},
		TaskTemplate: swarmapi.TaskSpec{
			ContainerSpec: &swarmapi.ContainerSpec{
				// A host that has left the swarm keeps its container, which then only its own labels identify.
				Labels: r.manager.labels("relay", "relay"),
				Image:  ref, Command: []string{imagestore.SelfPath}, Args: node.Own("relay")[1:],
				Env:      []string{relay.KeyVariable + "=" + key},
				ReadOnly: true, CapabilityDrop: []string{"ALL"},
				Mounts: []mount.Mount{{Type: mount.TypeBind, Source: EngineSocket, Target: EngineSocket}},
			},
			RestartPolicy: &swarmapi.RestartPolicy{Condition: swarmapi.RestartPolicyConditionNone},
			Placement:     &swarmapi.Placement{Constraints: []string{"node.id != " + r.swarm.local}},
			Networks:      []swarmapi.NetworkAttachmentConfig{{Target: between}},
			LogDriver:     &swarmapi.Driver{Name: "none"},
		},
	}})
	if err != nil {
		return "", fmt.Errorf("make the service of the relays: %w", err)
	}
	r.owedMu.Lock()
	r.service = made.ID
	r.owedMu.Unlock()
	return made.ID, nil
}

// relaysOf asks the swarm for the relays of hosts. Relays that are still starting are in neither map.
func (r *swarmRun) relaysOf(ctx context.Context, service, between string, hosts []swarmHost,
	ref string,
) (relayed, error) {
	found := relayed{at: map[string]string{}, lacks: map[string]error{}}
	tasks, err := r.manager.engine.api.TaskList(ctx,
		client.TaskListOptions{Filters: make(client.Filters).Add("service", service)})
	if err != nil {
		return found, fmt.Errorf("list the relays: %w", err)
	}
	for _, t := range tasks.Items {
		i := slices.IndexFunc(hosts, func(h swarmHost) bool { return h.id == t.NodeID })
		if i < 0 {
			continue
		}
		switch t.Status.State {
		case swarmapi.TaskStateRunning:
			for _, a := range t.NetworksAttachments {
				if a.Network.ID == between && len(a.Addresses) > 0 {
					found.at[t.NodeID] = net.JoinHostPort(a.Addresses[0].Addr().String(), relay.Port)
				}
			}
		case swarmapi.TaskStateRejected, swarmapi.TaskStateFailed, swarmapi.TaskStateComplete,
			swarmapi.TaskStateOrphaned:
			advice := ""
			if strings.Contains(t.Status.Err, "No such image") {
				advice = fmt.Sprintf("; the host needs image %s: `docker save` it here and `docker load` it there, or name one of a registry with --image %s=IMAGE", ref, RelayImage)
			}
			found.lacks[t.NodeID] = chaos.Unavailable{
				What:   "the relay of host " + hosts[i].name,
				Reason: fmt.Sprintf("its task is %s (%s)%s", t.Status.State, t.Status.Err, advice),
			}
		}
	}
	return found, nil
}

// elsewhere returns the engine of another host; dial connects to its socket.
func (s *swarm) elsewhere(of swarmHost, dial func(context.Context) (net.Conn, error)) (*docker, error) {
	o := s.engine.options
	o.Log = s.engine.log.With("host", of.name)
	d, err := speak(o, func(ctx context.Context, p *testcontainers.DockerProvider) error {
		transport := ownTransport()
		err := useClient(ctx, p,
			client.WithHTTPClient(&http.Client{Transport: transport, CheckRedirect: client.CheckRedirect}),
			client.WithHost("tcp://"+net.JoinHostPort(of.name, "2375")), // only a name: dial makes the connection
			client.WithDialContext(func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) }))
		transport.Proxy = nil // WithHost has set the environment's proxy
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("the engine of host %s: %w", of.name, err)
	}
	d.lend = func(ctx context.Context, ref string) (bool, error) { return s.give(ctx, d, ref) }
	return d, nil
}

// give copies an image from the manager's engine to another, and reports whether the manager has it.
func (s *swarm) give(ctx context.Context, to *docker, ref string) (bool, error) {
	if found, err := s.engine.store().Has(ctx, ref); !found || err != nil {
		return false, err
	}
	to.log.Info("copying image", "image", ref)
	from, err := s.engine.api.ImageSave(ctx, []string{ref})
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
