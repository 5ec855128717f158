package cluster

import (
	"context"
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
	"github.com/lockquake/lockquake/internal/agent"
)

// LocalOptions says how nodes run as child processes.
type LocalOptions struct {
	// Self is lockquake's own binary; "" means LOCKQUAKE_BIN, else the running program.
	Self string
	// Loopback puts all nodes on 127.0.0.1, each with ports of its own, even where network namespaces could be made.
	Loopback bool
	Log      *slog.Logger // may be nil
}

// local is the provider of child processes.
type local struct {
	options LocalOptions
	log     *slog.Logger
}

// NewLocal returns the provider of child processes of this machine.
func NewLocal(o LocalOptions) (Provider, error) {
	l := &local{options: o, log: o.Log}
	if l.log == nil {
		l.log = slog.New(slog.DiscardHandler)
	}
	return l, nil
}

// Name returns "local".
func (l *local) Name() string { return "local" }

// Offers tells what can be done to a child process.
func (l *local) Offers(c chaos.Capability, r Role) error {
	if c == CanLimit {
		_, err := probeLimits()
		return err
	}
	if err := agent.Supported(); err != nil && c != chaos.CanStart {
		return chaos.Unavailable{What: string(c), Reason: err.Error()}
	}
	if c == chaos.CanFreeze {
		if err := agent.FreezerSupported(); err != nil {
			return chaos.Unavailable{What: string(c), Reason: err.Error() + "; the agent makes control groups, for which it needs root and a writable hierarchy: use --provider docker, or pause"}
		}
	}
	if c == chaos.CanFilter || c == chaos.CanHold || slices.Contains(shapings, c) {
		if err := l.ownNetworks(); err != nil {
			return chaos.Unavailable{What: string(c), Reason: "all nodes share the loopback address: " + err.Error()}
		}
		if err := agent.FilterSupported(); err != nil && !slices.Contains(shapings, c) {
			return chaos.Unavailable{What: string(c), Reason: err.Error()}
		}
	}
	if slices.Contains(shapings, c) {
		return offersShaping(c, agent.TryEngines())
	}
	if c == chaos.CanClock {
		if os.Geteuid() != 0 {
			return chaos.Unavailable{What: string(c), Reason: "the agent writes into the memory of processes, for which it needs root; use --provider docker"}
		}
		return noClock(agent.CanClock())
	}
	if c == chaos.CanCutPower && r == Server {
		return disksHere()
	}
	if c == chaos.CanHoldSyncs && os.Geteuid() != 0 {
		return chaos.Unavailable{What: string(c), Reason: "the agent traces processes, for which it needs root; use --provider docker"}
	}
	return offers(c, r)
}

// ownNetworks tells why nodes would not get network namespaces of their own.
func (l *local) ownNetworks() error {
	if l.options.Loopback {
		return errors.New("asked for")
	}
	return probeNamespaces()
}

// Open finds the programs and makes the network; nothing is started but, where asked for, the agent.
func (l *local) Open(ctx context.Context, r Request) (*Cluster, error) {
	r, err := r.checked()
	if err != nil {
		return nil, err
	}
	for key := range r.Images {
		return nil, chaos.Unavailable{What: "--image " + key, Reason: "the local provider runs programs from PATH; use --provider docker"}
	}
	run := &localRun{local: l, request: r, owner: self(r.Run, r.Keep), thread: newThread()}
	c := &Cluster{close: run.close, Describe: map[string]string{"provider": "local"}}
	if r.Reuse {
		c.keeper = run
	}
	if err := run.open(ctx, c); err != nil {
		return nil, errors.Join(err, c.Close(ctx))
	}
	return c, nil
}

// localRun is what one run has on this machine.
type localRun struct {
	*local
	request Request
	owner   owner
	book    *logbook
	place   Place
	dir     string // of the run; its data and state file
	thread  *thread
	groups  *groups // nil: no node has limits
	net     *hub    // nil: all on the loopback address
	ports   reservation
	nodes   []*Node
	unfit   []func(context.Context) error // undoes what nodes were prepared with

	reserving sync.Mutex // guards ports and unfit

	agent *agent.Client
	guard *child // the agent's process
}

func (r *localRun) open(ctx context.Context, c *Cluster) error {
	if _, err := stateDir(); err != nil {
		return err
	}
	var err error
	if r.book, err = newLogbook(r.request.LogDir); err != nil {
		return err
	}
	var network string
	if r.place, network, err = r.connect(); err != nil {
		return err
	}
	c.Describe["network"] = network
	// The state file comes before anything that it describes.
	if r.dir, err = runDir(r.owner); err != nil {
		return err
	}
	for i, spec := range r.request.Specs {
		n, p, err := r.newNode(ctx, i, spec)
		if err != nil {
			return err
		}
		if err := r.limit(p, c); err != nil {
			return err
		}
		c.Nodes = append(c.Nodes, n)
		c.Describe["program_"+spec.Name] = p.path
		c.Describe["address_"+spec.Name] = r.place.Host(spec.Name)
	}
	r.nodes = c.Nodes
	c.Describe["agent"] = "the supervisor itself signals its children"
	if r.request.Agent {
		c.Describe["agent"] = "a child process"
		if err := r.startAgent(ctx); err != nil {
			c.Describe["agent"] = "not started, the supervisor itself signals its children: " + err.Error()
			r.log.Warn("the agent cannot be started, the supervisor signals by itself", "err", err)
		}
	}
	return nil
}

// newNode makes a node with an empty data directory.
func (r *localRun) newNode(ctx context.Context, index int, spec Spec) (*Node, *process, error) {
	data := filepath.Join(r.dir, spec.Name)
	if err := os.Mkdir(data, 0o700); err != nil {
		return nil, nil, fmt.Errorf("make the data directory of %s: %w", spec.Name, err)
	}
	n := &Node{spec: spec, place: r.place.of(spec.Name, data)}
	p, err := r.newProcess(ctx, n, index)
	if err != nil {
		return nil, nil, err
	}
	n.driver = p
	return n, p, nil
}

// limit makes the control group of a node that has limits.
func (r *localRun) limit(p *process, c *Cluster) (err error) {
	if p.spec.Limits.None() {
		return nil
	}
	if r.groups == nil {
		if r.groups, err = openGroups(r.request.Run, r.dir); err != nil {
			return noLimits(err)
		}
	}
	p.group, c.Describe[limitsKey(p.spec.Name)], err = r.groups.node(p.spec.Name, p.spec.Limits)
	return err
}

// connect gives each node a network namespace of its own where the machine allows it, else loopback ports.
func (r *localRun) connect() (Place, string, error) {
	reason := "asked for"
	if !r.options.Loopback {
		hub, place, err := r.makeHub()
		if err == nil {
			r.net = hub
			return place, "namespaces, " + hub.subnet.String(), nil
		}
		reason = err.Error()
		r.log.Info("no network namespaces, all nodes share the loopback address", "reason", reason)
	}
	place, ports, err := loopback(r.request.Specs)
	r.ports = ports
	return place, "loopback: " + reason, err
}

func (r *localRun) makeHub() (*hub, Place, error) {
	p, _, err := freeSubnet(r.request.Run, 0, hostSubnets())
	if err != nil {
		return nil, Place{}, err
	}
	h, err := newHub(r.thread, hubRequest{run: r.request.Run, tag: r.owner.tag(), subnet: p, nodes: len(r.request.Specs)})
	return h, ownAddresses(r.request.Specs, p), err
}

func (r *localRun) startAgent(ctx context.Context) error {
	path, err := selfProgram(r.options.Self)
	if err != nil {
		return err
	}
	// The file itself, also where the servers outlive their run: behind a pipe, the agent would end with the supervisor.
	logFile, err := r.book.file("agent")
	if err != nil {
		return err
	}
	defer func() { _ = logFile.Close() }()
	// It must outlive the supervisor by the moment that healing takes, so it does not die with it.
	r.guard, err = r.spawn(command{path: path, argv: []string{SelfProgram, "agent"}, name: "agent", node: -1, stdio: true, log: logFile, survives: true})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, agentStartTimeout)
	defer cancel()
	r.agent, err = agent.Connect(ctx, r.guard.stdio.In, r.guard.stdio.Out)
	return err
}

// close kills the processes, then removes the network and the data.
func (r *localRun) close(ctx context.Context) error {
	var errs []error
	for _, n := range r.nodes {
		errs = append(errs, n.driver.(*process).end(ctx))
	}
	if r.guard != nil {
		_ = r.guard.stdio.In.Close()
		errs = append(errs, r.guard.end(ctx, 2*time.Second))
	}
	for _, undo := range r.unfit {
		errs = append(errs, do(ctx, undo))
	}
	r.ports.release()
	if r.net != nil {
		errs = append(errs, r.net.close())
	}
	if r.groups != nil {
		errs = append(errs, r.groups.remove())
	}
	if r.dir != "" && !r.request.Keep {
		errs = append(errs, os.RemoveAll(r.dir))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	r.thread.close()
	return nil
}

// ownerFile is the state file in a run's directory.
const ownerFile = "owner"

// runDir makes the directory of a run, with the owner in it by which Sweep knows whose it is.
func runDir(o owner) (string, error) {
	dir, err := stateDir()
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, o.Run)
	if err := os.Mkdir(path, 0o700); err != nil {
		return "", fmt.Errorf("make the run's directory: %w", err)
	}
	if err := os.WriteFile(filepath.Join(path, ownerFile), []byte(o.tag()+"\n"), 0o600); err != nil {
		return "", errors.Join(fmt.Errorf("write the run's state: %w", err), os.RemoveAll(path))
	}
	return path, nil
}

// stateDir returns this user's directory for the state and data of local runs. It refuses one that another user made.
func stateDir() (string, error) {
	dir := stateDirName()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("make the state directory: %w", err)
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return "", fmt.Errorf("look at the state directory: %w", err)
	}
	if !info.IsDir() || info.Mode().Perm()&0o077 != 0 || !ownedByUs(info) {
		return "", fmt.Errorf("the state directory %s is not this user's alone; remove it or set TMPDIR", dir)
	}
	return dir, nil
}

func stateDirName() string {
	return filepath.Join(os.TempDir(), fmt.Sprintf("lockquake-%d", os.Getuid()))
}

// environment returns what a child is started with: ours, the marks by which Sweep knows it, and its own.
func (r *localRun) environment(name string, extra []string) []string {
	var env []string
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "LOCKQUAKE_") {
			env = append(env, e)
		}
	}
	env = append(env, "LOCKQUAKE_RUN="+r.request.Run, "LOCKQUAKE_NODE="+name, ownerVariable+r.owner.tag())
	return append(env, extra...)
}

// ownerVariable begins the environment setting that marks a child.
const ownerVariable = "LOCKQUAKE_OWNER="
