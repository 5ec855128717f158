package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"strings"
	"sync"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"
	"golang.org/x/sync/errgroup"

	"github.com/lockquake/lockquake/internal/agent"
	"github.com/lockquake/lockquake/internal/clock"
)

// dockerRun is what one run has in the engine.
type dockerRun struct {
	*docker
	request Request
	owner   owner
	book    *logbook
	place   Place
	images  map[string]string // image key -> reference
	network string            // id
	subnet  netip.Prefix
	near    bool // the supervisor reaches containers by their addresses

	mu         sync.Mutex
	containers []string // ids of the nodes', in the order of creation
	agentBox   string   // id of the agent's container
	nodes      []*Node
	agentUp    chan struct{}                 // closed when the agent was started, or could not be
	agent      *agent.Client                 // nil: the engine does what the agent would
	stopping   map[string][]func()           // by node, ends its streams
	unfit      []func(context.Context) error // undoes what nodes were prepared with
}

func (r *dockerRun) open(ctx context.Context, c *Cluster) error {
	var err error
	if r.book, err = newLogbook(r.request.LogDir); err != nil {
		return err
	}
	if err := r.resolveImages(ctx); err != nil {
		return err
	}
	if err := r.makeNetwork(ctx); err != nil {
		return err
	}
	r.place = ownAddresses(r.request.Specs, r.subnet)
	c.Nodes = make([]*Node, len(r.request.Specs))
	g, gctx := errgroup.WithContext(ctx)
	for i, spec := range r.request.Specs {
		g.Go(func() (err error) {
			c.Nodes[i], err = r.newNode(gctx, spec)
			return err
		})
	}
	agentReason := "no scenario of this run needs it"
	if !r.request.Agent {
		close(r.agentUp)
	} else {
		g.Go(func() error {
			defer close(r.agentUp)
			agentReason = "in the engine's pid namespace"
			if err := r.startAgent(gctx); err != nil {
				agentReason = "not started, the engine signals instead: " + err.Error()
				r.log.Warn("the agent cannot be started, signals go through the engine", "err", err)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	r.nodes = c.Nodes
	c.Describe["agent"] = agentReason
	c.Describe["network"] = r.subnet.String()
	for key, ref := range r.images {
		c.Describe["image_"+key] = ref
	}
	for _, n := range c.Nodes {
		c.Describe["address_"+n.Name()] = n.place.Host(n.Name())
		if l := n.driver.(*containerNode).limits; l != "" {
			c.Describe[limitsKey(n.Name())] = l
		}
	}
	return nil
}

// newNode makes a node with its container.
func (r *dockerRun) newNode(ctx context.Context, spec Spec) (*Node, error) {
	n := &Node{spec: spec, place: r.place.of(spec.Name, dataDir)}
	driver, err := r.create(ctx, n)
	if err != nil {
		return nil, fmt.Errorf("make the container of %s: %w", spec.Name, err)
	}
	n.driver = driver
	return n, nil
}

// makeNetwork makes a private network with a subnet of its own: the engine gives fixed addresses only in such.
func (r *dockerRun) makeNetwork(ctx context.Context) error {
	used := hostSubnets()
	list, err := r.api.NetworkList(ctx, client.NetworkListOptions{})
	if err != nil {
		return fmt.Errorf("list the engine's networks: %w", err)
	}
	for _, n := range list.Items {
		for _, c := range n.IPAM.Config {
			if c.Subnet.IsValid() {
				used = append(used, c.Subnet)
			}
		}
	}
	for try := 0; try < 64; try++ {
		var p netip.Prefix
		if p, try, err = freeSubnet(r.request.Run, try, used); err != nil {
			return err
		}
		made, err := r.api.NetworkCreate(ctx, r.networkName(), client.NetworkCreateOptions{
			Driver: "bridge", Labels: r.owner.labels(),
			IPAM: &network.IPAM{Config: []network.IPAMConfig{{Subnet: p, Gateway: hostAddr(p, 1)}}},
		})
		if err != nil && overlaps(err) {
			continue // another run took it meanwhile, or a route that we cannot see covers it
		}
		if err != nil {
			return fmt.Errorf("make the run's network %v: %w", p, err)
		}
		r.network, r.subnet = made.ID, p
		r.near = !r.options.published && hasAddress(hostAddr(p, 1))
		return nil
	}
	return errors.New("make the run's network: every subnet tried overlaps another")
}

func overlaps(err error) bool {
	return strings.Contains(err.Error(), "overlap") || strings.Contains(err.Error(), "conflicts with network")
}

// hasAddress tells whether the address is one of this machine's: the engine's bridge is here, so containers can be
// reached by their own addresses.
func hasAddress(a netip.Addr) bool {
	for _, p := range hostAddrs() {
		if p == a {
			return true
		}
	}
	return false
}

func (r *dockerRun) networkName() string   { return "lockquake-" + r.request.Run }
func (r *dockerRun) name(of string) string { return "lockquake-" + r.request.Run + "-" + of }
func (r *dockerRun) remember(container string) {
	r.locked(func() { r.containers = append(r.containers, container) })
}

// atClose has f called when the node is gone.
func (r *dockerRun) atClose(node string, f func()) {
	r.locked(func() {
		if r.stopping == nil {
			r.stopping = map[string][]func(){}
		}
		r.stopping[node] = append(r.stopping[node], f)
	})
}

func (r *dockerRun) locked(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
}

// labels returns the labels of one container.
func (r *dockerRun) labels(name string, role Role) map[string]string {
	out := maps.Clone(r.owner.labels())
	out[label+"node"], out[label+"role"] = name, string(role)
	return out
}

// close removes everything. The agent goes last but for the network: its end continues what it stopped, should that
// still be there.
func (r *dockerRun) close(ctx context.Context) error {
	if r.request.Keep && r.network != "" {
		r.resumeAll(ctx)
		if r.agent != nil {
			return r.agent.Close()
		}
		return nil
	}
	var errs []error
	r.mu.Lock()
	containers, stopping, agentBox, unfit := r.containers, r.stopping, r.agentBox, r.unfit
	r.mu.Unlock()
	var g errgroup.Group
	for _, id := range containers {
		g.Go(func() error { return removeContainer(ctx, r.api, id) })
	}
	errs = append(errs, g.Wait())
	if r.agent != nil {
		_ = r.agent.Close() // whatever it says, it is removed next
	}
	if agentBox != "" {
		errs = append(errs, removeContainer(ctx, r.api, agentBox))
	}
	for _, undo := range unfit {
		errs = append(errs, do(ctx, undo))
	}
	for _, list := range stopping {
		for _, stop := range list {
			stop()
		}
	}
	if r.network != "" {
		errs = append(errs, removeNetwork(ctx, r.api, r.network, networkTries))
	}
	return errors.Join(errs...)
}

// resumeAll lets every stopped process of a kept run go on.
func (r *dockerRun) resumeAll(ctx context.Context) {
	for _, n := range r.nodes {
		n.thawAll(ctx)
		if s, err := n.Inspect(ctx); err == nil && s.Threads["T"] > 0 {
			n.pauses.Store(0)
			if _, err := n.Resume(ctx); err != nil {
				r.log.Warn("a kept node stays stopped", "node", n.Name(), "err", err)
			}
		}
	}
}

// removeContainer kills and removes a container with its volumes; one that is gone is no error.
func removeContainer(ctx context.Context, api client.APIClient, id string) error {
	var err error
	for range 200 {
		_, err = api.ContainerRemove(ctx, id, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
		if err == nil || cerrdefs.IsNotFound(err) {
			return nil
		}
		if !cerrdefs.IsConflict(err) || clock.Sleep(ctx, 50*time.Millisecond) != nil { // a conflict: its removal is under way
			break
		}
	}
	return fmt.Errorf("remove container %.12s: %w", id, err)
}

// networkTries is how often a network is removed again that a container has just left: within 2 s.
const networkTries = 40

// removeNetwork removes a network, waiting for the last container to leave it.
func removeNetwork(ctx context.Context, api client.APIClient, id string, tries int) error {
	var err error
	for i := range tries {
		if _, err = api.NetworkRemove(ctx, id, client.NetworkRemoveOptions{}); err == nil || cerrdefs.IsNotFound(err) {
			return nil
		}
		if i == tries-1 || clock.Sleep(ctx, 50*time.Millisecond) != nil {
			break
		}
	}
	return fmt.Errorf("remove network %.12s: %w", id, err)
}
