package cluster

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockquake/lockquake/chaos"
	wall "github.com/lockquake/lockquake/chaos/clock"
	"github.com/lockquake/lockquake/chaos/disk"
	"github.com/lockquake/lockquake/chaos/links"
	"github.com/lockquake/lockquake/chaos/process"
	"github.com/lockquake/lockquake/internal/agent"
	"github.com/lockquake/lockquake/internal/agent/proc"
	"github.com/lockquake/lockquake/internal/cluster/address"
	"github.com/lockquake/lockquake/internal/cluster/executable"
	"github.com/lockquake/lockquake/internal/cluster/identity"
	"github.com/lockquake/lockquake/internal/cluster/limits"
	"github.com/lockquake/lockquake/internal/cluster/netspace"
	"github.com/lockquake/lockquake/internal/cluster/nodelog"
	"github.com/lockquake/lockquake/internal/cluster/owner"
	"github.com/lockquake/lockquake/internal/cluster/placement"
	"github.com/lockquake/lockquake/internal/cluster/processes"
	"github.com/lockquake/lockquake/internal/cluster/state"
	"github.com/lockquake/lockquake/internal/node"
)

// LocalOptions are the options of nodes as child processes.
type LocalOptions struct {
	// Self is lockquake's own binary; "" means LOCKQUAKE_BIN, else the running program.
	Self string
	// Loopback puts all nodes on 127.0.0.1, each with its own ports, even if network namespaces are available.
	Loopback bool
	Log      *slog.Logger // may be nil
	// Mechanisms are the agents' mechanisms, which are asked what is possible on this machine.
	Mechanisms agent.Mechanisms
}

// localProvider is the provider of child processes.
type localProvider struct {
	options  LocalOptions
	log      *slog.Logger
	agentEnv []string // additions of tests to the environment of agents
}

// NewLocal returns the provider of child processes on this machine.
func NewLocal(o LocalOptions) (Provider, error) {
	l := &localProvider{options: o, log: o.Log}
	if l.log == nil {
		l.log = slog.New(slog.DiscardHandler)
	}
	return l, nil
}

// Name returns "local".
func (l *localProvider) Name() string { return "local" }

// grouped are the orders for which the agent makes control groups.
var grouped = map[chaos.Capability]string{
	process.CanFreeze: process.DoFreeze, process.CanLimitCPU: process.DoLimitCPU,
}

// Offers reports what can be done to a child process.
func (l *localProvider) Offers(c chaos.Capability, r node.Role) error {
	if r != node.Client {
		if err := identity.CheckCapabilities(); err != nil {
			return err
		}
	}
	if c == CanLimit {
		_, err := limits.Probe()
		return err
	}
	if c == CanAlike {
		if err := placement.Separate(); err != nil {
			return chaos.Unavailable{What: string(c), Reason: err.Error()}
		}
		return nil
	}
	if err := proc.Supported(); err != nil && c != chaos.CanStart {
		return chaos.Unavailable{What: string(c), Reason: err.Error()}
	}
	if do := grouped[c]; do != "" {
		if err := l.options.Mechanisms.Supports(do); err != nil {
			return chaos.Unavailable{What: string(c), Reason: err.Error() +
				"; the agent makes control groups, for which it needs root and a writable hierarchy: use --provider docker"}
		}
	}
	if do := asked[c]; do == links.DoFilter || do == links.DoReset || slices.Contains(shapings, c) {
		if err := l.ownNetworks(); err != nil {
			return chaos.Unavailable{What: string(c), Reason: "all nodes share the loopback address: " + err.Error()}
		}
		if !slices.Contains(shapings, c) {
			if err := l.options.Mechanisms.Supports(do); err != nil {
				return chaos.Unavailable{What: string(c), Reason: err.Error()}
			}
		}
	}
	if slices.Contains(shapings, c) {
		var e links.Engines
		if err := l.options.Mechanisms.Ask(context.Background(), agent.Order{Do: links.DoEngines}, &e); err != nil {
			return chaos.Unavailable{What: string(c), Reason: err.Error()}
		}
		return offersShaping(c, e)
	}
	if c == wall.CanClock {
		if os.Geteuid() != 0 {
			return chaos.Unavailable{
				What:   string(c),
				Reason: "the agent writes into the memory of processes, for which it needs root; use --provider docker",
			}
		}
		return noClock(l.options.Mechanisms.Supports(wall.DoClock))
	}
	if c == disk.CanCutPower && r == node.Server {
		return disksHere()
	}
	if c == disk.CanHoldSyncs && os.Geteuid() != 0 {
		return chaos.Unavailable{
			What:   string(c),
			Reason: "the agent traces processes, for which it needs root; use --provider docker",
		}
	}
	return offers(c, r)
}

// ownNetworks returns why nodes would not get network namespaces of their own.
func (l *localProvider) ownNetworks() error {
	if l.options.Loopback {
		return errors.New("asked for")
	}
	return netspace.Probe()
}

// Open finds the programs and makes the network. It starts only the agent, if asked for.
func (l *localProvider) Open(ctx context.Context, r Request) (*Cluster, error) {
	r, err := r.checked()
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(r.Specs, func(s node.Spec) bool { return s.Role != node.Client }) {
		if err := identity.CheckCapabilities(); err != nil {
			return nil, err
		}
	}
	for key := range r.Images {
		return nil, chaos.Unavailable{
			What:   "--image " + key,
			Reason: "the local provider runs programs from PATH; use --provider docker",
		}
	}
	run := &localRun{
		provider: l, request: r, owner: owner.Self(r.Run, r.Keep), thread: netspace.NewThread(),
		servers: identity.OfServers(r.Run), password: rand.Text(),
	}
	c := &Cluster{close: run.close, Describe: map[string]string{"provider": "local"}}
	if r.Reuse {
		c.keeper = run
	}
	if err := run.open(ctx, c); err != nil {
		return nil, errors.Join(err, c.Close(ctx))
	}
	return c, nil
}

// localRun is one run's state on this machine.
type localRun struct {
	provider  *localProvider
	request   Request
	owner     owner.Mark
	servers   identity.User // user of all nodes except clients
	password  string        // of all servers with a password
	logs      *nodelog.Logs
	place     node.Place
	dir       string // of the run; its data and state file
	thread    *netspace.Thread
	confined  *netspace.Thread // starts servers if they run as another user; else nil
	groups    *limits.Groups   // nil: no node has limits
	net       *netspace.Hub    // nil: all on the loopback address
	ports     address.Reservation
	nodes     []*Node
	unprepare []func(context.Context) error // undo the preparations of nodes

	reserving sync.Mutex // guards ports and unprepare

	agent        *agent.Client
	agentErr     error  // why it is missing
	agentProcess *child // the agent's process
}

func (r *localRun) open(ctx context.Context, c *Cluster) error {
	if _, err := state.Dir(); err != nil {
		return err
	}
	if r.servers != 0 {
		r.confined = netspace.NewThread()
		if err := r.confined.Confine(); err != nil {
			return err
		}
	}
	var err error
	if r.logs, err = nodelog.Open(r.request.LogDir); err != nil {
		return err
	}
	var network string
	if r.place, network, err = r.connect(); err != nil {
		return err
	}
	c.Describe["network"] = network
	if set := r.request.proxies(); set != "" {
		c.Describe["proxy_variables"] = set + ": clients that use them reach the service through a proxy"
	}
	// The state file is written before anything that it describes.
	if r.dir, err = state.Make(r.owner); err != nil {
		return err
	}
	if err := r.makeNodes(ctx, c, 0); err != nil {
		return err
	}
	if !r.request.Agent {
		r.agentErr = errAgentNotNeeded
		c.Describe["agent"] = "the supervisor itself signals its children"
		return nil
	}
	c.Describe["agent"] = "a child process"
	if r.agentErr = r.startAgent(ctx); r.agentErr != nil {
		c.Describe["agent"] = "not started, the supervisor itself signals its children: " + r.agentErr.Error()
		r.provider.log.Warn("the agent cannot be started, the supervisor signals by itself", "err", r.agentErr)
	}
	return nil
}

// makeNodes makes the nodes from that number on.
func (r *localRun) makeNodes(ctx context.Context, c *Cluster, from int) error {
	var made []*Node
	for i, spec := range r.request.Specs[from:] {
		n, p, err := r.newNode(ctx, from+i, spec)
		if err != nil {
			return err
		}
		if err := r.limit(p, c); err != nil {
			return err
		}
		made = append(made, n)
		c.Describe[programKey(spec.Name)] = p.path
		c.Describe[addressKey(spec.Name)] = r.place.Host(spec.Name)
	}
	c.replaceNodes(from, made)
	r.nodes = c.Nodes
	return nil
}

// newNode makes a node with an empty data directory.
func (r *localRun) newNode(ctx context.Context, index int, spec node.Spec) (*Node, *localNode, error) {
	data := filepath.Join(r.dir, spec.Name)
	if err := os.Mkdir(data, 0o700); err != nil {
		return nil, nil, fmt.Errorf("make the data directory of %s: %w", spec.Name, err)
	}
	if err := r.identityOf(spec.Role).Give(data); err != nil {
		return nil, nil, fmt.Errorf("give the data directory of %s to its server: %w", spec.Name, err)
	}
	place := r.place.Of(spec.Name, data).Guarded(spec, data+".secret").Beside(spec, spec.Folder)
	if err := r.leaveSecret(place, spec); err != nil {
		return nil, nil, fmt.Errorf("write the password of %s: %w", spec.Name, err)
	}
	n := newNode(spec, place)
	if spec.Secret != nil {
		n.login.Password = r.password
	}
	p, err := r.newProcess(ctx, n, index)
	if err != nil {
		return nil, nil, err
	}
	n.driver = p
	return n, p, nil
}

// leaveSecret writes the password file of a node's program.
func (r *localRun) leaveSecret(p node.Place, s node.Spec) error {
	if p.Secret == "" {
		return nil
	}
	if err := os.WriteFile(p.Secret, []byte(s.Secret(r.password)), 0o600); err != nil {
		return err
	}
	return r.identityOf(s.Role).Give(p.Secret)
}

// identityOf returns the user of a node's process. A client runs as the supervisor's own user, who chose its program.
func (r *localRun) identityOf(role node.Role) identity.User {
	if role == node.Client {
		return 0
	}
	return r.servers
}

// limit makes the control group of a node that has limits.
func (r *localRun) limit(p *localNode, c *Cluster) (err error) {
	if p.spec.Limits.None() {
		return nil
	}
	if r.groups == nil {
		if r.groups, err = limits.Open(r.request.Run, r.dir); err != nil {
			return limits.Lacking(err)
		}
	}
	p.group, c.Describe[limitsKey(p.spec.Name)], err = r.groups.Node(p.spec.Name, p.spec.Limits)
	return err
}

// connect gives each node its own network namespace if the machine allows it, else loopback ports.
func (r *localRun) connect() (node.Place, string, error) {
	reason := "asked for"
	if !r.provider.options.Loopback {
		hub, place, err := r.makeHub()
		if err == nil {
			r.net = hub
			return place, "namespaces, " + hub.Subnet.String(), nil
		}
		reason = err.Error()
		r.provider.log.Info("no network namespaces, all nodes share the loopback address", "reason", reason)
	}
	place, ports, err := address.Loopback(r.request.Specs)
	r.ports = ports
	return place, "loopback: " + reason, err
}

func (r *localRun) makeHub() (*netspace.Hub, node.Place, error) {
	p := address.Subnet(r.request.Run, 0) // no other process sees the network
	h, err := netspace.NewHub(r.thread, p, len(r.request.Specs), r.owner.Tag())
	return h, address.PutAll(r.request.Specs, p), err
}

func (r *localRun) startAgent(ctx context.Context) error {
	path, err := executable.Self(r.provider.options.Self)
	if err != nil {
		return err
	}
	// The file itself, even if the servers outlive their run: with a pipe, the agent would end with the supervisor.
	logFile, err := r.logs.File("agent")
	if err != nil {
		return err
	}
	defer func() { _ = logFile.Close() }()
	// It must outlive the supervisor long enough to heal, so it does not die with it.
	r.agentProcess, err = r.spawn(command{
		path: path, argv: node.Own("agent"), env: r.provider.agentEnv, name: "agent", node: -1,
		stdio: true, log: logFile, survives: true,
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, agentStartTimeout)
	defer cancel()
	r.agent, err = agent.Connect(ctx, r.agentProcess.stdio.In, r.agentProcess.stdio.Out)
	return err
}

// close kills the processes, then removes the network and the data.
func (r *localRun) close(ctx context.Context) error {
	var errs []error
	for _, n := range r.nodes {
		errs = append(errs, n.driver.(*localNode).end(ctx))
	}
	if r.agentProcess != nil {
		_ = r.agentProcess.stdio.In.Close()
		errs = append(errs, r.agentProcess.end(ctx, 2*time.Second))
	}
	for _, undo := range r.unprepare {
		errs = append(errs, runHook(ctx, undo))
	}
	r.ports.Release()
	if r.net != nil {
		r.net.Close()
	}
	if r.groups != nil {
		errs = append(errs, r.groups.Remove())
	}
	if err := errors.Join(errs...); err != nil {
		return err // the record stays, so that clean knows the owner of the rest
	}
	if r.dir != "" && !r.request.Keep {
		if err := os.RemoveAll(r.dir); err != nil {
			return err
		}
	}
	r.thread.Close()
	if r.confined != nil {
		r.confined.Close()
	}
	return nil
}

// environment returns the environment of a child: ours, the marks by which Sweep finds it, and the node's own. Ours may
// hold secrets, so a child of another user gets only the parts that programs need.
func (r *localRun) environment(c command) []string {
	var env []string
	for _, e := range os.Environ() {
		name, _, _ := strings.Cut(e, "=")
		direct := slices.Contains(proxyVariables, name) && r.request.ownServers()
		if !strings.HasPrefix(e, "LOCKQUAKE_") && !direct && (c.user == 0 || slices.Contains(forServers, name)) {
			env = append(env, e)
		}
	}
	env = append(env, "LOCKQUAKE_RUN="+r.request.Run, "LOCKQUAKE_NODE="+c.name, processes.OwnerVariable+r.owner.Tag())
	return append(env, c.env...)
}

// proxyVariables name a proxy. Some clients would use it for private addresses too, where it cannot answer.
var proxyVariables = []string{
	"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy",
	"all_proxy", "no_proxy",
}

// ownServers reports whether the run has servers of its own. Those are reached directly, external ones as the
// environment says.
func (r Request) ownServers() bool {
	return slices.ContainsFunc(r.Specs, func(s node.Spec) bool { return s.Role == node.Server })
}

// proxies names the variables by which the clients of a run without its own servers may use a proxy; "": none is set.
func (r Request) proxies() string {
	if r.ownServers() {
		return ""
	}
	return strings.Join(slices.DeleteFunc(slices.Clone(proxyVariables),
		func(name string) bool { return os.Getenv(name) == "" }), ", ")
}

// forServers names our variables that servers of another user get.
var forServers = []string{"PATH", "LANG", "LC_ALL", "TZ", "JAVA_HOME", "LD_LIBRARY_PATH"}

func (r *localRun) nodeLogs() *nodelog.Logs { return r.logs }

// vacate ends the node's process and removes its data and its control group.
func (r *localRun) vacate(ctx context.Context, n *Node) error {
	p := n.driver.(*localNode)
	if err := p.end(ctx); err != nil {
		return err
	}
	if err := p.group.Remove(); err != nil {
		return fmt.Errorf("remove its control group: %w", err)
	}
	for _, path := range []string{n.place.Dir, n.place.Secret} {
		if path == "" {
			continue
		}
		if err := os.RemoveAll(path); err != nil {
			return fmt.Errorf("remove its data: %w", err)
		}
	}
	return nil
}

// renew makes the nodes of another run, each in a new namespace.
func (r *localRun) renew(ctx context.Context, c *Cluster, next Request, from int) error {
	specs := next.Specs
	r.request.Specs = specs
	for i, s := range specs[from:] {
		if r.net != nil {
			address.Put(r.place, s, from+i, r.net.Subnet)
		} else if err := r.ports.Place(r.place, s); err != nil {
			return err
		}
	}
	if r.net != nil {
		if err := r.net.Renew(r.thread, from, len(specs)); err != nil {
			return err
		}
	}
	return r.makeNodes(ctx, c, from)
}
