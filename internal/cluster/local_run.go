package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/lockquake/lockquake/internal/agent"
)

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
