// Package cluster runs nodes: as containers (docker), containers on several machines (swarm), child processes (local),
// or goroutines of this process (inproc). All have one type, Node, with the machine capabilities that chaos asks for.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/internal/agent/proc"
	"github.com/lockquake/lockquake/internal/cluster/address"
	"github.com/lockquake/lockquake/internal/cluster/nodelog"
	"github.com/lockquake/lockquake/internal/cluster/processes"
	"github.com/lockquake/lockquake/internal/node"
	"github.com/lockquake/lockquake/internal/wire"
)

// Request asks a provider for the nodes of one run.
type Request struct {
	Run    string            // unique id of the run, [a-z0-9]+, at most 10 bytes: part of every label and name
	Specs  []node.Spec       // all nodes
	Images map[string]string // image key -> image, overriding the project's own
	LogDir string            // where each node's output (stderr only, with Stdio) goes as NAME.log
	// Agent asks for the agent, which inspects and signals processes from outside. Set it if a scenario has faults that
	// act on a process.
	Agent bool
	// Keep makes Close leave containers (docker) or data directories (local) for inspection. Sweep removes them only
	// with All.
	Keep bool
	// Reuse prepares for Vacate and Renew, so that the servers' output can move to the log directory of another run.
	Reuse bool
	// Hosts says how the nodes are spread over several machines (swarm).
	Hosts node.Hosts
	// Needs has the capabilities that will be needed of each node, by name. Offers covers a provider as a whole; a
	// provider with several machines checks Needs on each of them.
	Needs map[string][]chaos.Capability
	Log   *slog.Logger // may be nil
}

// Provider opens clusters.
type Provider interface {
	// Name is "docker", "swarm", "local" or "inproc".
	Name() string
	// Offers returns nil when nodes of this role have the capability, else a chaos.Unavailable with the reason.
	Offers(c chaos.Capability, r node.Role) error
	// Open assigns addresses, makes the network and whatever else the nodes share, and returns the nodes, not yet
	// started. On an error nothing is left behind.
	Open(ctx context.Context, r Request) (*Cluster, error)
}

// Cluster has the nodes of one run, or of several consecutive ones.
type Cluster struct {
	Nodes   []*Node
	changed sync.RWMutex // held while Renew changes Nodes
	// Describe says what the nodes run on, for env.json: provider, engine version, addresses, images.
	Describe map[string]string
	// SeparateClocks means that the nodes' clocks are not the run's, even if the boot ids are equal, so they are always
	// measured. It is for nodes on several machines, and for machines simulated on one.
	SeparateClocks bool
	// AgentClocks are the clocks of the agents. Measured ones are measured again every few seconds, since an agent
	// timestamps what it sees with its own clock.
	AgentClocks []*wire.RemoteClock
	close       func(ctx context.Context) error
	keeper      keeper // nil if no node outlives a run
	closing     sync.Mutex
	closed      bool
}

// Node returns the node with that name, or nil.
func (c *Cluster) Node(name string) *Node {
	c.changed.RLock()
	defer c.changed.RUnlock()
	for _, n := range c.Nodes {
		if n.Name() == name {
			return n
		}
	}
	return nil
}

// ByRole returns the nodes of one role, in order.
func (c *Cluster) ByRole(r node.Role) []*Node {
	c.changed.RLock()
	defer c.changed.RUnlock()
	var out []*Node
	for _, n := range c.Nodes {
		if n.Role() == r {
			out = append(out, n)
		}
	}
	return out
}

// Close ends all processes, stopped ones too, and removes everything that the run made. It works with a cancelled
// context, within closeTimeout. It may be called again to retry what could not be removed.
func (c *Cluster) Close(ctx context.Context) error {
	c.closing.Lock()
	defer c.closing.Unlock()
	if c.closed {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	err := c.close(ctx)
	c.closed = err == nil
	return err
}

// closeTimeout bounds one Close.
const closeTimeout = 30 * time.Second

var runName = regexp.MustCompile(`^[a-z0-9]{1,10}$`)

// checked returns the request with its defaults, or an error if it is invalid.
func (r Request) checked() (Request, error) {
	if !runName.MatchString(r.Run) {
		return r, fmt.Errorf("run id %q is not 1 to 10 of a-z and 0-9", r.Run)
	}
	if r.Log == nil {
		r.Log = slog.New(slog.DiscardHandler)
	}
	if err := checkSpecs(r.Specs); err != nil {
		return r, err
	}
	return r, enoughFiles(len(r.Specs), proc.OpenFiles())
}

// enoughFiles returns an error if a process of the run would run out of file handles: the supervisor, which needs some
// per node, or a server, which has the supervisor's limit.
func enoughFiles(nodes int, may uint64) error {
	const base, each = 256, 16
	if need := uint64(base + each*nodes); may < need {
		return chaos.Unavailable{
			What:   fmt.Sprintf("a run of %d nodes", nodes),
			Reason: fmt.Sprintf("too many open files: ulimit -n allows %d here, and %d are needed; raise the hard limit (ulimit -n %d as root, LimitNOFILE= in systemd, --ulimit nofile in Docker)", may, need, need),
		}
	}
	return nil
}

// checkSpecs returns why no network could have these nodes.
func checkSpecs(specs []node.Spec) error {
	seen := make(map[string]bool, len(specs))
	for _, s := range specs {
		if !processes.NodeName.MatchString(s.Name) || seen[s.Name] {
			return fmt.Errorf("node name %q is used twice or holds more than a-z, 0-9 and -", s.Name)
		}
		seen[s.Name] = true
	}
	if len(specs) > address.MaxNodes {
		return fmt.Errorf("%d nodes are more than the %d that one network takes", len(specs), address.MaxNodes)
	}
	return nil
}

// The keys of a node in Cluster.Describe: its address, its program (local), and the limits read back.
func addressKey(node string) string { return "address_" + node }
func programKey(node string) string { return "program_" + node }
func limitsKey(node string) string  { return "limits_" + node }

// keeper is implemented by providers that keep their servers between runs, with the network and the agent.
type keeper interface {
	// vacate ends a node that is not a server and removes what the run made for it.
	vacate(ctx context.Context, n *Node) error
	// renew makes the nodes of the next run's specs from that number on, not yet started, and puts them behind the
	// servers in c.Nodes. The vacated nodes are still there. No server is asked anything meanwhile, since each sees
	// where the others are placed.
	renew(ctx context.Context, c *Cluster, next Request, from int) error
	// nodeLogs returns the log files of the nodes.
	nodeLogs() *nodelog.Logs
}

// errNotKept means that a cluster ends with its run.
var errNotKept = errors.New("the nodes of this provider end with their run")

// Vacate ends every node except the servers, and removes what the ended ones had. The servers run on, with their
// network and the agent, until Close.
func (c *Cluster) Vacate(ctx context.Context) error {
	if c.keeper == nil {
		return errNotKept
	}
	var g errgroup.Group
	for _, n := range c.Nodes {
		if n.Role() == node.Server {
			continue
		}
		g.Go(func() error {
			if err := c.keeper.vacate(ctx, n); err != nil {
				return fmt.Errorf("end %s: %w", n.Name(), err)
			}
			return nil
		})
	}
	return g.Wait()
}

// Renew makes the nodes of another run in a vacated cluster. It uses the Specs, LogDir and Needs of the request. The
// servers stay, and come first in the specs. Every other node is new: it has its own place, and no process yet. The
// servers log to LogDir from now on.
func (c *Cluster) Renew(ctx context.Context, next Request) error {
	if c.keeper == nil {
		return errNotKept
	}
	if err := checkSpecs(next.Specs); err != nil {
		return err
	}
	servers := len(c.ByRole(node.Server))
	for i, s := range next.Specs {
		if (s.Role == node.Server) != (i < servers) {
			return fmt.Errorf("%s is number %d of the nodes, but the %d servers come first", s.Name, i+1, servers)
		}
	}
	var ended []string
	for _, n := range c.Nodes[servers:] {
		ended = append(ended, n.Name())
	}
	if err := c.keeper.nodeLogs().SwitchTo(next.LogDir, ended); err != nil {
		return err
	}
	for _, n := range c.Nodes[servers:] {
		n.place.Remove(n.Name())
		for _, key := range []string{addressKey(n.Name()), programKey(n.Name()), limitsKey(n.Name())} {
			delete(c.Describe, key)
		}
	}
	return c.keeper.renew(ctx, c, next, servers)
}

// replaceNodes replaces the nodes from that number on.
func (c *Cluster) replaceNodes(from int, nodes []*Node) {
	c.changed.Lock()
	defer c.changed.Unlock()
	c.Nodes = append(c.Nodes[:from:from], nodes...)
}
