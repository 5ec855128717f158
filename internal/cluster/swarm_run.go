package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"
	"golang.org/x/sync/errgroup"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/chaos/links"
	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/agent"
	"github.com/lockquake/lockquake/internal/cluster/address"
	"github.com/lockquake/lockquake/internal/cluster/nodelog"
	"github.com/lockquake/lockquake/internal/cluster/state"
	"github.com/lockquake/lockquake/internal/node"
	"github.com/lockquake/lockquake/internal/relay"
)

const (
	// relaysTimeout bounds the start of the hub, and that of the relays on all hosts.
	relaysTimeout = time.Minute
	// startsAtOnce is how many containers a host starts at a time. The manager attaches them to the network one after
	// another, and the engine gives up after 20 s. Of ten at once the last took 14 s.
	startsAtOnce = 4
	// overlayTries is how often to retry the removal of a network over several hosts, each of which has to leave it:
	// within 20 s.
	overlayTries = 400
)

// EngineSocket is the socket of the engine on a relay's host.
const EngineSocket = "/var/run/docker.sock"

// swarmRun is one run's state in a swarm.
type swarmRun struct {
	swarm   *swarm
	request Request
	manager *dockerRun // the run's state in the manager's engine, except nodes
	place   node.Place
	subnet  netip.Prefix
	key     relay.Key
	hub     *relay.Client // nil until it runs
	members []*member
	away    []swarmHost // the excluded ones
	visit   bool        // unavailable hosts are skipped, and their members say why

	owedMu   sync.Mutex
	networks []string // ids, the relays' first
	service  string   // id of the relays'
}

// member is one host with the run's state there.
type member struct {
	swarmHost
	run   *dockerRun
	of    Cluster // the nodes on this host, servers first
	lacks error   // why it is unavailable, in a visit
}

// Open makes the networks and the relays, and the containers on all hosts, which are not yet started.
func (s *swarm) Open(ctx context.Context, r Request) (*Cluster, error) {
	_, c, err := s.openRun(ctx, r, false)
	return c, err
}

// visit opens a run on all available hosts, calls look, and closes the run without leftovers.
func (s *swarm) visit(ctx context.Context, r Request, look func(*swarmRun, *Cluster) error) error {
	logs, remove, err := state.Scratch("swarm")
	if err != nil {
		return fmt.Errorf("make a directory for the logs of hosts: %w", err)
	}
	defer func() { _ = remove() }()
	r.LogDir, r.Log = logs, s.engine.log
	run, c, err := s.openRun(ctx, r, true)
	if err != nil {
		return err
	}
	return errors.Join(look(run, c), c.Close(ctx))
}

func (s *swarm) openRun(ctx context.Context, r Request, visit bool) (*swarmRun, *Cluster, error) {
	r, err := r.checked()
	if err != nil {
		return nil, nil, err
	}
	run := &swarmRun{swarm: s, request: r, manager: s.engine.newRun(r), visit: visit}
	c := &Cluster{close: run.close, SeparateClocks: true, Describe: map[string]string{
		"provider": "swarm", "engine": s.engine.version.Version, "engine_api": s.engine.api.ClientVersion(),
		"engine_host": s.engine.api.DaemonHost(),
		"hosts_rule":  r.Hosts.String(),
	}}
	if r.Reuse {
		c.keeper = run
	}
	if err := run.open(ctx, c); err != nil {
		return nil, nil, errors.Join(err, c.Close(ctx))
	}
	return run, c, nil
}

func (r *swarmRun) open(ctx context.Context, c *Cluster) error {
	hosts, away, err := r.swarm.hosts(ctx)
	if err != nil {
		return err
	}
	if len(hosts) == 0 && !r.visit {
		return chaos.Unavailable{
			What:   "the swarm provider",
			Reason: "no host of the swarm is ready and active; see `docker node ls`",
		}
	}
	hosts = r.swarm.inTurn(hosts)
	var out []string
	for _, h := range away {
		out = append(out, h.text())
	}
	if len(out) > 0 {
		c.Describe["hosts_left_out"] = strings.Join(out, ", ")
	}
	r.away = away
	on, err := placeOn(r.request.Specs, hosts, r.request.Hosts)
	if err != nil {
		return err
	}
	if r.manager.logs, err = nodelog.Open(r.request.LogDir); err != nil {
		return err
	}
	if r.key, err = relay.NewKey(); err != nil {
		return err
	}
	between, err := r.makeNetworks(ctx)
	if err != nil {
		return err
	}
	var relays relayed
	var g errgroup.Group
	g.Go(func() error { return r.startHub(ctx, between) })
	g.Go(func() (err error) {
		relays, err = r.startRelays(ctx, between, hosts)
		return err
	})
	if err := g.Wait(); err != nil {
		return err
	}
	r.place = address.PutAll(r.request.Specs, r.subnet)
	for _, h := range hosts {
		r.members = append(r.members, &member{
			swarmHost: h, of: Cluster{Describe: map[string]string{}},
			lacks: relays.lacks[h.id],
		})
	}
	c.Describe["network"], c.Describe["network_encryption"] = r.subnet.String(), OverlayInClear
	if err := r.each(func(i int, m *member) error {
		if m.lacks == nil {
			m.lacks = r.join(ctx, m, relays.at[m.id], ownOf(r.request.Specs, on, i))
		}
		if r.visit {
			return nil
		}
		return m.lacks
	}); err != nil {
		return err
	}
	r.gather(c, r.request.Specs, on, 0)
	return nil
}

// OverlayInClear says that traffic between hosts is not encrypted. The engine's own encryption is not used, because its
// effect is not checked. If a kernel lacks what it needs, engines before 20.10.24 and 23.0.3 silently send in clear
// (CVE-2023-28841). Others start no container in such a network, and with some kernels nothing arrives
// (moby/moby#43359).
const OverlayInClear = "none: traffic between hosts, including passwords, can be read on the way"

// each calls f for all hosts concurrently, and names the host in an error.
func (r *swarmRun) each(f func(int, *member) error) error {
	var g errgroup.Group
	for i, m := range r.members {
		g.Go(func() error {
			if err := f(i, m); err != nil {
				return fmt.Errorf("host %s: %w", m.name, err)
			}
			return nil
		})
	}
	return g.Wait()
}

// ownOf returns the specs of one host.
func ownOf(specs []node.Spec, on []int, host int) []node.Spec {
	var out []node.Spec
	for i, s := range specs {
		if on[i] == host {
			out = append(out, s)
		}
	}
	return out
}

// join makes the nodes of a host, and starts its agent if it has nodes.
func (r *swarmRun) join(ctx context.Context, m *member, relayAt string, specs []node.Spec) error {
	engine := r.manager.engine
	if !m.local {
		var err error
		if engine, err = r.swarm.elsewhere(m.swarmHost, func(ctx context.Context) (net.Conn, error) {
			return r.hub.DialEngine(ctx, r.key, relayAt)
		}); err != nil {
			return err
		}
	}
	request := r.request
	request.Specs, request.Agent, request.Log = specs, request.Agent && (len(specs) > 0 || r.request.Reuse), engine.log
	request.Images = r.imagesOf(specs)
	run := engine.newRun(request)
	run.owner, run.password, run.logs = r.manager.owner, r.manager.password, r.manager.logs
	run.place, run.subnet, run.network, run.guest = r.place, r.subnet, r.networks[1], true
	run.reach, run.agentName, run.starting = r.hub.Dial, "agent-"+m.name, make(chan struct{}, startsAtOnce)
	m.run = run
	m.of.Describe["engine_"+m.name], m.of.Describe[history.CoresOf+m.name] = engine.version.Version,
		strconv.FormatInt(m.cores, 10)
	if m.local {
		m.of.Describe[history.HostOf+history.Engine] = m.name
	}
	if err := run.resolveImages(ctx); err != nil {
		return err
	}
	if err := run.fill(ctx, &m.of); err != nil {
		return err
	}
	if err := lacking(specs, r.request.Needs, m.offers(ctx)); err != nil {
		return err
	}
	if run.agent != nil && !m.local && !run.agent.Clock().Separate() {
		// Engines on one machine share a boot id, even if their clocks differ.
		if _, err := run.agent.Clock().Measure(ctx); err != nil {
			return fmt.Errorf("compare the agent's clock: %w", err)
		}
	}
	return nil
}

// offers returns a function that reports what can be done to nodes on this host, from its own agent and, for limits,
// its engine. A host without an agent lacks what faults need: the engine could stop processes there, but nothing would
// resume them if the supervisor died.
func (m *member) offers(ctx context.Context) func(chaos.Capability, node.Role) error {
	return func(c chaos.Capability, r node.Role) error {
		a, refused := m.run.agent, func(why string) error { return chaos.Unavailable{What: string(c), Reason: why} }
		switch do := asked[c]; {
		case c == CanAlike, c == CanLimit:
			return m.run.engine.Offers(c, r)
		case a == nil:
			return refused("the host has no agent (" + m.of.Describe[m.run.agentName] + ")")
		case slices.Contains(shapings, c):
			var e links.Engines
			if err := a.Order(ctx, agent.Order{Do: links.DoEngines}, &e); err != nil {
				return refused(err.Error())
			}
			return offersShaping(c, e)
		case do != "":
			if err := a.Supports(ctx, do); err != nil {
				return refused(err.Error())
			}
			return nil
		default:
			return offers(c, r)
		}
	}
}

// lacking returns an error for capabilities that a host's nodes need and the host does not offer.
func lacking(specs []node.Spec, needs map[string][]chaos.Capability,
	offers func(chaos.Capability, node.Role) error,
) error {
	var errs []error
	for _, s := range specs {
		for _, c := range slices.Compact(slices.Sorted(slices.Values(needs[s.Name]))) {
			if err := offers(c, s.Role); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", s.Name, err))
			}
		}
	}
	return errors.Join(errs...)
}

// imagesOf returns the images that the user named for these nodes.
func (r *swarmRun) imagesOf(specs []node.Spec) map[string]string {
	images := maps.Clone(r.request.Images)
	maps.DeleteFunc(images, func(key, _ string) bool {
		return !slices.ContainsFunc(specs, func(s node.Spec) bool { return s.Image == key })
	})
	return images
}

// gather puts the nodes of all hosts from that number on into the cluster, in the order of the specs.
func (r *swarmRun) gather(c *Cluster, specs []node.Spec, on []int, from int) {
	var nodes []*Node
	for i, s := range specs[from:] {
		m := r.members[on[from+i]]
		if m.lacks != nil {
			continue
		}
		nodes = append(nodes, m.of.Node(s.Name))
		c.Describe[history.HostOf+s.Name] = m.name
	}
	c.AgentClocks = nil
	for _, m := range r.members {
		maps.Copy(c.Describe, m.of.Describe)
		c.AgentClocks = append(c.AgentClocks, m.of.AgentClocks...)
	}
	c.replaceNodes(from, nodes)
}

// makeNetworks makes the network of the nodes, and one between the hub and the relays, whose id it returns.
func (r *swarmRun) makeNetworks(ctx context.Context) (between string, err error) {
	// The clients of an attached service, which has no node here, must reach it.
	closed := slices.ContainsFunc(r.request.Specs, func(s node.Spec) bool { return s.Role == node.Server })
	if between, _, err = r.overlay(ctx, r.manager.name("relays"), true); err != nil {
		return "", err
	}
	_, r.subnet, err = r.overlay(ctx, r.manager.networkName(), closed)
	return between, err
}

// overlay makes a network over all hosts; if it is closed, nothing leads out of it. It returns the half of its
// addresses that is reserved for nodes; the swarm's own placements, such as the hub, use the other. The subnet is
// specific to the run. If each run took the first free one, a host that still has the network of the run before would
// refuse this one.
func (r *swarmRun) overlay(ctx context.Context, name string, closed bool) (id string, nodes netip.Prefix, err error) {
	used, err := r.manager.engine.usedSubnets(ctx)
	if err != nil {
		return "", nodes, err
	}
	for try := 0; try < 64; try++ {
		var p netip.Prefix
		if p, try, err = address.FreeSubnet(name, try, used); err != nil {
			return "", nodes, err
		}
		whole := netip.PrefixFrom(p.Addr(), 23).Masked()
		nodes = netip.PrefixFrom(whole.Addr(), 24)
		upper := whole.Addr().As4()
		upper[2]++
		made, err := r.manager.engine.api.NetworkCreate(ctx, name, client.NetworkCreateOptions{
			Driver: "overlay", Attachable: true, Internal: closed, Labels: r.manager.owner.Labels(),
			IPAM: &network.IPAM{Config: []network.IPAMConfig{{
				Subnet: whole, IPRange: netip.PrefixFrom(netip.AddrFrom4(upper), 24),
				Gateway: address.Numbered(nodes, 1),
			}}},
		})
		if err != nil && overlaps(err) {
			continue
		}
		if err != nil {
			return "", nodes, fmt.Errorf("make the network %s of %v: %w", name, whole, err)
		}
		r.owedMu.Lock()
		r.networks = append(r.networks, made.ID)
		r.owedMu.Unlock()
		return made.ID, nodes, nil
	}
	return "", nodes, fmt.Errorf("make the network %s: every subnet tried overlaps another", name)
}

// startHub starts the hub in both networks.
func (r *swarmRun) startHub(ctx context.Context, between string) error {
	image, err := r.manager.engine.store().EnsureSelf(ctx)
	if err != nil {
		return err
	}
	r.manager.images = map[string]string{node.SelfProgram: image}
	startCtx, cancel := context.WithTimeout(ctx, relaysTimeout)
	defer cancel()
	_, s, err := helper{name: "hub", kind: "hub", networks: []string{between, r.networks[1]}}.start(startCtx, r.manager)
	if err != nil {
		return fmt.Errorf("start the hub: %w", err)
	}
	r.hub, err = relay.Connect(s.In, s.Out)
	return err
}

// close removes everything on all hosts, then the hub, the relays and the networks.
func (r *swarmRun) close(ctx context.Context) error {
	errs := []error{r.each(func(_ int, m *member) error {
		if m.run == nil {
			return nil
		}
		return m.run.close(ctx)
	})}
	if r.hub != nil {
		_ = r.hub.Close() // its container is removed next
	}
	r.owedMu.Lock()
	networks, service := slices.Clone(r.networks), r.service
	r.owedMu.Unlock()
	errs = append(errs, r.manager.close(ctx))
	if service != "" {
		if _, err := r.manager.engine.api.ServiceRemove(ctx, service, client.ServiceRemoveOptions{}); err != nil &&
			!cerrdefs.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("remove the service of the relays: %w", err))
		}
	}
	if r.request.Keep && len(networks) > 1 {
		networks = networks[:1] // kept containers are in the other
	}
	for _, id := range networks {
		errs = append(errs, removeNetwork(ctx, r.manager.engine.api, id, overlayTries))
	}
	return errors.Join(errs...)
}

func (r *swarmRun) nodeLogs() *nodelog.Logs { return r.manager.logs }

// vacate removes the node's container.
func (r *swarmRun) vacate(ctx context.Context, n *Node) error {
	c := n.driver.(*containerNode)
	return c.run.discard(ctx, c)
}

// renew makes the containers of another run. The rule places servers as it did before.
func (r *swarmRun) renew(ctx context.Context, c *Cluster, next Request, from int) error {
	specs := next.Specs
	hosts := make([]swarmHost, len(r.members))
	for i, m := range r.members {
		hosts[i] = m.swarmHost
	}
	on, err := placeOn(specs, hosts, r.request.Hosts)
	if err != nil {
		return err
	}
	for i, s := range specs[from:] {
		address.Put(r.place, s, from+i, r.subnet)
	}
	if err := r.each(func(i int, m *member) error {
		m.run.request.Specs = ownOf(specs, on, i)
		m.run.request.Images = r.imagesOf(m.run.request.Specs)
		if err := lacking(m.run.request.Specs, next.Needs, m.offers(ctx)); err != nil {
			return err
		}
		if err := m.run.resolveImages(ctx); err != nil {
			return err
		}
		return m.run.makeNodes(ctx, &m.of, len(m.of.ByRole(node.Server)), nil)
	}); err != nil {
		return err
	}
	r.gather(c, specs, on, from)
	return nil
}
