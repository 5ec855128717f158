// Package cluster is where nodes run: containers (docker), child processes (local), or goroutines of this process
// (inproc). All are one type, Node, with the machine capabilities that chaos asks for.
package cluster

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"regexp"
	"sync"
	"time"

	"github.com/lockquake/lockquake/chaos"
)

// Role is what a node is for.
type Role string

// The roles. The supervisor is never a node.
const (
	Server   Role = "server"
	Client   Role = "client"
	Resource Role = "resource"
)

// Port is a TCP port that a node listens on.
type Port struct {
	Name   string // such as "client" or "peer"
	Number int    // the standard one; used where the node has an address of its own
}

// Place is what a node knows of the run's network when its command line is made.
type Place struct {
	Self  string            // name of the node itself
	Dir   string            // an empty, writable directory for its data
	addrs map[string]string // "node/port" -> "host:port"
	hosts map[string]string // node -> host
}

// Address returns "host:port" of a node's named port, as seen inside the run's network.
func (p Place) Address(node, port string) string { return p.addrs[node+"/"+port] }

// Host returns the host part alone.
func (p Place) Host(node string) string { return p.hosts[node] }

// Spec describes a node to be started.
type Spec struct {
	Name  string
	Role  Role
	Ports []Port
	// Image is the image key ("redis", "etcd", "lockquake"); the provider maps it to an image or a binary.
	Image string
	// Command makes argv. The first word is a program found on PATH, or SelfProgram for lockquake's own binary.
	Command func(Place) []string
	// Env holds extra "KEY=value" settings.
	Env []string
	// Limits holds the node's process and its children to a share of the machine.
	Limits Limits
	// Go tells that the program is written in Go, which asks the kernel for the time and not the C library.
	Go bool
	// SyncThreads is what the names of the program's threads begin with that call fsync and its like, where it is known that no
	// others do.
	SyncThreads []string
	// Preparations are what the run's faults need of the node before it starts.
	Preparations []chaos.Preparation
	// Stdio asks for the node's standard input and output as its control stream.
	Stdio bool
	// Restartable tells whether Start may be called again after the process ended.
	Restartable bool
	// StopSignal is what the process takes for a request to end in order: "INT"; "": SIGTERM.
	StopSignal string
	// RestartDelay is how long every start but the first waits before it begins: a server that comes back only when
	// every lease that it forgot is over.
	RestartDelay time.Duration
}

// SelfProgram as the first word of a command means lockquake's own binary, wherever the provider keeps it.
const SelfProgram = "lockquake"

// Request asks a provider for the nodes of one run.
type Request struct {
	Run    string            // unique id of the run, [a-z0-9]+, at most 10 bytes: part of every label and name
	Specs  []Spec            // all nodes
	Images map[string]string // image key -> image, overriding the project's own
	LogDir string            // where each node's output (stderr only, with Stdio) goes as NAME.log
	// Agent asks for the agent, which sees and signals processes from outside: set it where a scenario has faults that
	// reach a process.
	Agent bool
	// Keep makes Close leave behind what can be looked at: containers (docker), data directories (local). Sweep takes
	// them only with All.
	Keep bool
	// Reuse prepares for Vacate and Renew: the output of the servers can go to the log directory of another run.
	Reuse bool
	Log   *slog.Logger // may be nil
}

// Provider makes clusters.
type Provider interface {
	// Name is "docker", "local" or "inproc".
	Name() string
	// Offers returns nil when nodes of this role have the capability, else a chaos.Unavailable with the reason.
	Offers(c chaos.Capability, r Role) error
	// Open assigns addresses, makes the network and whatever else the nodes share, and returns the nodes, not yet
	// started. On an error nothing is left behind.
	Open(ctx context.Context, r Request) (*Cluster, error)
}

// Cluster is the nodes of one run, or of several that follow each other.
type Cluster struct {
	Nodes   []*Node
	changed sync.RWMutex // held while Renew changes Nodes
	// Describe says what the nodes run on, for env.json: provider, engine version, addresses, images.
	Describe map[string]string
	close    func(ctx context.Context) error
	keeper   keeper // nil where no node outlives a run
	closing  sync.Mutex
	closed   bool
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

// ByRole returns the nodes of one role, in their order.
func (c *Cluster) ByRole(r Role) []*Node {
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
// context, within closeTimeout, and may be called more than once; what could not be removed is tried again.
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

// Stdio is the control stream of a running node. A stopped node takes no more than what the pipe holds: a Write beyond it
// waits.
type Stdio struct {
	In  io.WriteCloser
	Out io.Reader
}

var (
	runName  = regexp.MustCompile(`^[a-z0-9]{1,10}$`)
	nodeName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,40}$`)
)

// checked returns the request with its defaults, or what is wrong with it.
func (r Request) checked() (Request, error) {
	if !runName.MatchString(r.Run) {
		return r, fmt.Errorf("run id %q is not 1 to 10 of a-z and 0-9", r.Run)
	}
	seen := make(map[string]bool, len(r.Specs))
	for _, s := range r.Specs {
		if !nodeName.MatchString(s.Name) || seen[s.Name] {
			return r, fmt.Errorf("node name %q is used twice or holds more than a-z, 0-9 and -", s.Name)
		}
		seen[s.Name] = true
	}
	if len(r.Specs) > maxNodes {
		return r, fmt.Errorf("%d nodes are more than the %d that one network takes", len(r.Specs), maxNodes)
	}
	if r.Log == nil {
		r.Log = slog.New(slog.DiscardHandler)
	}
	return r, nil
}
