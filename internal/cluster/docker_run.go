package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"
	"golang.org/x/sync/errgroup"

	"github.com/lockquake/lockquake/internal/agent"
	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/internal/cluster/address"
	"github.com/lockquake/lockquake/internal/cluster/copyin"
	"github.com/lockquake/lockquake/internal/cluster/nodelog"
	"github.com/lockquake/lockquake/internal/cluster/owner"
	"github.com/lockquake/lockquake/internal/node"
	"github.com/lockquake/lockquake/internal/wire"
)

// dockerRun is one run's state in the engine.
type dockerRun struct {
	engine   *docker
	request  Request
	owner    owner.Mark
	logs     *nodelog.Logs
	place    node.Place
	password string            // of all servers with a password
	images   map[string]string // image key -> reference
	network  string            // id
	guest    bool              // the network is made and removed elsewhere
	subnet   netip.Prefix
	near     bool // the supervisor reaches containers by their addresses
	// reach dials addresses of the network if the supervisor cannot; nil: directly or by published ports.
	reach func(ctx context.Context, address string) (net.Conn, error)
	// starting limits how many containers start at once; nil: no limit.
	starting chan struct{}

	nodes     []*Node
	agentUp   chan struct{} // closed when the agent was started, or could not be
	agent     *agent.Client // nil: the engine replaces it
	agentErr  error         // why it is missing
	agentName string        // of its container and its log

	owed dockerCleanup
}

// dockerCleanup has what a run made in the engine and must remove.
type dockerCleanup struct {
	mu         sync.Mutex
	containers []string                      // ids of the nodes', in the order of creation
	helpers    []string                      // ids of the containers of the agent and its like
	stopping   map[string][]func()           // by node, ends its streams
	unprepare  []func(context.Context) error // undo the preparations of nodes
}

func (r *dockerRun) open(ctx context.Context, c *Cluster) error {
	var err error
	if r.logs, err = nodelog.Open(r.request.LogDir); err != nil {
		return err
	}
	if err := r.resolveImages(ctx); err != nil {
		return err
	}
	if err := r.makeNetwork(ctx); err != nil {
		return err
	}
	r.place = address.PutAll(r.request.Specs, r.subnet)
	c.Describe["network"] = r.subnet.String()
	return r.fill(ctx, c)
}

// fill makes the nodes, and starts the agent concurrently.
func (r *dockerRun) fill(ctx context.Context, c *Cluster) error {
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error { return r.makeNodes(gctx, c, 0, nil) })
	g.Go(func() error {
		defer close(r.agentUp)
		if !r.request.Agent {
			r.agentErr = errAgentNotNeeded
		} else if r.agentErr = r.startAgent(gctx); r.agentErr != nil {
			r.engine.log.Warn("the agent cannot be started, signals go through the engine", "agent", r.agentName, "err",
				r.agentErr)
		}
		return nil
	})
	if err := g.Wait(); err != nil {
		return err
	}
	switch {
	case r.agent != nil:
		c.AgentClocks = []*wire.RemoteClock{r.agent.Clock()}
		c.Describe[r.agentName] = "in the engine's pid namespace"
	case r.request.Agent:
		c.Describe[r.agentName] = "not started, the engine signals instead: " + r.agentErr.Error()
	default:
		c.Describe[r.agentName] = r.agentErr.Error()
	}
	return nil
}

// makeNodes makes the nodes from that number on, concurrently. Those in boxes already have a container.
func (r *dockerRun) makeNodes(ctx context.Context, c *Cluster, from int, boxes map[int]*containerNode) error {
	made := make([]*Node, len(r.request.Specs)-from)
	g, ctx := errgroup.WithContext(ctx)
	for i := range made {
		g.Go(func() (err error) {
			made[i], err = r.newNode(ctx, r.request.Specs[from+i], boxes[from+i])
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	c.replaceNodes(from, made)
	r.nodes = c.Nodes
	for key, ref := range r.images {
		c.Describe["image_"+key] = ref
	}
	for _, n := range made {
		c.Describe[addressKey(n.Name())] = n.place.Host(n.Name())
		if l := n.driver.(*containerNode).limits; l != "" {
			c.Describe[limitsKey(n.Name())] = l
		}
	}
	return nil
}

// newNode makes a node with a new container, or with an existing one.
func (r *dockerRun) newNode(ctx context.Context, spec node.Spec, box *containerNode) (*Node, error) {
	n := newNode(spec, r.place.Of(spec.Name, dataDir).Guarded(spec, secretInImage).Beside(spec, copyin.FolderPath))
	if box != nil {
		n.driver = &containerNode{run: r, spec: spec, node: n, box: box.box, limits: box.limits, prepared: box.prepared}
		return n, nil
	}
	if spec.Secret != nil {
		n.login.Password = r.password
	}
	driver, err := r.create(ctx, n)
	if err != nil {
		return nil, fmt.Errorf("make the container of %s: %w", spec.Name, err)
	}
	n.driver = driver
	if n.place.Secret != "" {
		// Readable for every user of the image: only the node's own programs see these files.
		err = copyin.File(ctx, r.engine.api, driver.box.GetContainerID(), n.place.Secret, spec.Secret(r.password))
	}
	if spec.Folder != "" && err == nil {
		err = copyin.Folder(ctx, r.engine.api, driver.box.GetContainerID(), spec.Folder)
	}
	return n, err
}

// secretInImage is where a container finds its password.
const secretInImage = "/lockquake-secret"

// makeNetwork makes a private network with its own subnet: the engine assigns fixed addresses only in such a network.
func (r *dockerRun) makeNetwork(ctx context.Context) error {
	used, err := r.engine.usedSubnets(ctx)
	if err != nil {
		return err
	}
	for try := 0; try < 64; try++ {
		var p netip.Prefix
		if p, try, err = address.FreeSubnet(r.request.Run, try, used); err != nil {
			return err
		}
		made, err := whole(ctx, func(ctx context.Context) (client.NetworkCreateResult, error) {
			return r.engine.api.NetworkCreate(ctx, r.networkName(), client.NetworkCreateOptions{
				Driver: "bridge", Labels: r.owner.Labels(),
				IPAM: &network.IPAM{Config: []network.IPAMConfig{{Subnet: p, Gateway: address.Numbered(p, 1)}}},
			})
		})
		if err != nil && overlaps(err) {
			continue // another run took it meanwhile, or an invisible route covers it
		}
		if err != nil {
			return fmt.Errorf("make the run's network %v: %w", p, err)
		}
		r.network, r.subnet = made.ID, p
		r.near = !r.engine.options.published && hasAddress(address.Numbered(p, 1))
		return nil
	}
	return errors.New("make the run's network: every subnet tried overlaps another")
}

// usedSubnets returns the subnets of the engine's networks and of this machine.
func (d *docker) usedSubnets(ctx context.Context) ([]netip.Prefix, error) {
	used := address.HostPrefixes()
	list, err := d.api.NetworkList(ctx, client.NetworkListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list the engine's networks: %w", err)
	}
	for _, n := range list.Items {
		for _, c := range n.IPAM.Config {
			if c.Subnet.IsValid() {
				used = append(used, c.Subnet)
			}
		}
	}
	return used, nil
}

func overlaps(err error) bool {
	return strings.Contains(err.Error(), "overlap") || strings.Contains(err.Error(), "conflicts with network")
}

// hasAddress reports whether this machine has the address: then the engine's bridge is here, and containers can be
// reached by their own addresses.
func hasAddress(a netip.Addr) bool {
	return slices.ContainsFunc(address.HostPrefixes(), func(p netip.Prefix) bool { return p.Addr() == a })
}

func (r *dockerRun) networkName() string   { return "lockquake-" + r.request.Run }
func (r *dockerRun) name(of string) string { return "lockquake-" + r.request.Run + "-" + of }

// atClose registers f to be called when the node is gone.
func (o *dockerCleanup) atClose(node string, f func()) {
	o.locked(func() {
		if o.stopping == nil {
			o.stopping = map[string][]func(){}
		}
		o.stopping[node] = append(o.stopping[node], f)
	})
}

func (o *dockerCleanup) locked(f func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	f()
}

// labels returns the labels of one container.
func (r *dockerRun) labels(name string, role node.Role) map[string]string {
	out := maps.Clone(r.owner.Labels())
	out[owner.Label+"node"], out[owner.Label+"role"] = name, string(role)
	return out
}

// close removes everything. The agent is removed last, just before the network: at its end it continues what it
// stopped, if that still exists.
func (r *dockerRun) close(ctx context.Context) error {
	if r.request.Keep && r.network != "" {
		for _, n := range r.nodes {
			if err := n.Signals.letGo(ctx); err != nil {
				r.engine.log.Warn("a kept node stays stopped", "node", n.Name(), "err", err)
			}
		}
		if r.agent != nil {
			return r.agent.Close()
		}
		return nil
	}
	var errs []error
	r.owed.mu.Lock()
	containers, stopping, helpers, unprepare := r.owed.containers, r.owed.stopping, r.owed.helpers, r.owed.unprepare
	r.owed.mu.Unlock()
	var g errgroup.Group
	for _, id := range containers {
		g.Go(func() error { return removeContainer(ctx, r.engine.api, id) })
	}
	errs = append(errs, g.Wait())
	if r.agent != nil {
		_ = r.agent.Close() // its error does not matter: it is removed next
	}
	for _, id := range helpers {
		errs = append(errs, removeContainer(ctx, r.engine.api, id))
	}
	for _, undo := range unprepare {
		errs = append(errs, runHook(ctx, undo))
	}
	for _, list := range stopping {
		for _, stop := range list {
			stop()
		}
	}
	if r.network != "" && !r.guest {
		err := removeNetwork(ctx, r.engine.api, r.network, networkTries)
		if miscounted(ctx, r.engine.api, r.network, err) {
			r.engine.log.Warn("a network is left: "+Miscount, "network", r.networkName())
			err = nil
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// makingTimeout bounds one request that creates something.
const makingTimeout = 30 * time.Second

// whole creates something at the engine. A request that was sent does not end with ctx: the engine would go on, and the
// result would be unknown.
func whole[T any](ctx context.Context, make func(context.Context) (T, error)) (made T, err error) {
	if err := ctx.Err(); err != nil {
		return made, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), makingTimeout)
	defer cancel()
	return make(ctx)
}

// removeContainer kills and removes a container with its volumes. A missing container is no error.
func removeContainer(ctx context.Context, api client.APIClient, id string) error {
	var err error
	for range 200 {
		_, err = api.ContainerRemove(ctx, id, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
		if err == nil || cerrdefs.IsNotFound(err) {
			return nil
		}
		// a conflict: its removal is in progress
		if !cerrdefs.IsConflict(err) || clock.Sleep(ctx, 50*time.Millisecond) != nil {
			break
		}
	}
	return fmt.Errorf("remove container %.12s: %w", id, err)
}

// networkTries is how often to retry the removal of a network that a container has just left: within 2 s.
const networkTries = 40

// removeNetwork removes a network, waiting for the last container to leave it.
func removeNetwork(ctx context.Context, api client.APIClient, id string, tries int) error {
	removed := func(err error) bool { return err == nil || cerrdefs.IsNotFound(err) }
	var err error
	for i := range tries {
		if _, err = api.NetworkRemove(ctx, id, client.NetworkRemoveOptions{}); removed(err) {
			// A network over several hosts exists until each of them has left it.
			if _, err := api.NetworkInspect(ctx, id, client.NetworkInspectOptions{}); cerrdefs.IsNotFound(err) {
				return nil
			}
		}
		if i == tries-1 || clock.Sleep(ctx, 50*time.Millisecond) != nil {
			break
		}
	}
	if removed(err) {
		return nil
	}
	return fmt.Errorf("remove network %.12s: %w", id, err)
}

const (
	// ActiveEndpoints is Docker's error for a network that is in use.
	ActiveEndpoints = "has active endpoints"
	// Miscount explains a network that cannot be removed.
	Miscount = "the engine miscounts the endpoints of a network without containers (seen with Docker 20.10, " +
		"moby/moby#42119): restart the engine, and run `lockquake clean`"
)

// networkInspector is the part of the engine that lists the containers in a network.
type networkInspector interface {
	NetworkInspect(ctx context.Context, id string, o client.NetworkInspectOptions) (client.NetworkInspectResult, error)
}

// miscounted reports whether the engine refused to remove a network because of endpoints, but lists none. When
// containers of a network end at the same moment, Docker 20.10 sometimes miscounts. A run cannot prevent that, so it is
// not an error of the run.
func miscounted(ctx context.Context, api networkInspector, id string, err error) bool {
	if err == nil || !strings.Contains(err.Error(), ActiveEndpoints) {
		return false
	}
	info, err := api.NetworkInspect(ctx, id, client.NetworkInspectOptions{})
	return err == nil && len(info.Network.Containers) == 0
}

func (r *dockerRun) nodeLogs() *nodelog.Logs { return r.logs }

// vacate ends the node's process. A container of our own binary stays, for renew to check; any other is removed.
func (r *dockerRun) vacate(ctx context.Context, n *Node) error {
	c := n.driver.(*containerNode)
	if c.spec.Image != node.SelfProgram {
		return r.discard(ctx, c)
	}
	if n.Process.Running() {
		_, err := r.engine.api.ContainerKill(ctx, c.box.GetContainerID(),
			client.ContainerKillOptions{Signal: "SIGKILL"})
		if err != nil && !cerrdefs.IsConflict(err) { // a conflict: it has just ended
			return fmt.Errorf("kill its container: %w", err)
		}
		select {
		case <-n.Process.Exited():
		case <-ctx.Done():
			return fmt.Errorf("its process does not end: %w", ctx.Err())
		}
	}
	r.owed.stopStreams(n.Name())
	return nil
}

// discard removes a container.
func (r *dockerRun) discard(ctx context.Context, c *containerNode) error {
	id := c.box.GetContainerID()
	if err := removeContainer(ctx, r.engine.api, id); err != nil {
		return err
	}
	r.owed.locked(func() {
		r.owed.containers = slices.DeleteFunc(r.owed.containers, func(known string) bool { return known == id })
	})
	r.owed.stopStreams(c.spec.Name)
	return nil
}

func (o *dockerCleanup) stopStreams(node string) {
	var stopping []func()
	o.locked(func() {
		stopping = o.stopping[node]
		delete(o.stopping, node)
	})
	for _, stop := range stopping {
		stop()
	}
}

// renew makes the containers of another run. A container of our own binary is restarted if the same node has the same
// address and nothing was written into it. It then has a new process in new namespaces, and unchanged files. That is
// twice as fast as a new container.
func (r *dockerRun) renew(ctx context.Context, c *Cluster, next Request, from int) error {
	specs := next.Specs
	r.request.Specs = specs
	if err := r.resolveImages(ctx); err != nil {
		return err
	}
	for i, s := range specs[from:] {
		address.Put(r.place, s, from+i, r.subnet)
	}
	boxes := map[int]*containerNode{}
	var mu sync.Mutex
	g, gctx := errgroup.WithContext(ctx)
	for i, n := range c.Nodes[from:] {
		i += from // the same number has the same address
		old := n.driver.(*containerNode)
		if n.spec.Image != node.SelfProgram {
			continue // it is gone
		}
		g.Go(func() error {
			if i >= len(specs) || n.Name() != specs[i].Name || n.Differs(specs[i]) != "" || !old.untouched(gctx) {
				return r.discard(gctx, old)
			}
			mu.Lock()
			defer mu.Unlock()
			boxes[i] = old
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return r.makeNodes(ctx, c, from, boxes)
}

// untouched asks the engine whether a container's files are those of its image. The empty data directory does not
// count: the engine made it.
func (c *containerNode) untouched(ctx context.Context) bool {
	diff, err := c.run.engine.api.ContainerDiff(ctx, c.box.GetContainerID(), client.ContainerDiffOptions{})
	return err == nil && !slices.ContainsFunc(diff.Changes,
		func(f container.FilesystemChange) bool { return f.Path != dataDir })
}
