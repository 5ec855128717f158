package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockquake/lockquake/internal/agent"
)

// process drives one node as a child process.
type process struct {
	run     *localRun
	spec    Spec
	node    *Node
	index   int
	path    string
	argv    []string
	group   *group // nil: no limits
	fitting fitting

	mu    sync.Mutex
	child *child // started last
	sig   signaller
}

// newProcess finds the node's program, so that a missing one is known before anything starts.
func (r *localRun) newProcess(ctx context.Context, n *Node, index int) (*process, error) {
	argv := n.spec.Command(n.place)
	if len(argv) == 0 {
		return nil, fmt.Errorf("the command of %s is empty", n.Name())
	}
	path, err := program(argv[0], r.options.Self)
	if err != nil {
		return nil, err
	}
	fitting, err := fit(ctx, r, n, localPreparations)
	r.reserving.Lock()
	r.unfit = append(r.unfit, fitting.undo)
	r.reserving.Unlock()
	if err != nil {
		return nil, err
	}
	return &process{run: r, spec: n.spec, node: n, index: index, path: path, argv: argv, fitting: fitting}, nil
}

func (p *process) start(ctx context.Context) (Stdio, *ending, error) {
	logFile, err := p.run.book.outlet(p.spec.Name, p.run.request.Reuse && p.spec.Role == Server)
	if err != nil {
		return Stdio{}, nil, err
	}
	defer func() { _ = logFile.Close() }()
	if err := do(ctx, p.fitting.before); err != nil {
		return Stdio{}, nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.run.portsOf(p.spec.Name)
	path, argv, err := p.onDisk(p.path, p.argv)
	if err != nil {
		return Stdio{}, nil, err
	}
	c, err := p.run.spawn(command{
		path: path, argv: argv, name: p.spec.Name, node: p.index, dir: p.node.place.Dir, env: slices.Concat(p.spec.Env, p.fitting.env),
		group: p.group, stdio: p.spec.Stdio, log: logFile,
	})
	if err != nil {
		return Stdio{}, nil, err
	}
	p.child = c
	p.sig = p.run.signallerOf(ctx, c)
	return c.stdio, c.over, nil
}

// portsOf gives the node's reserved ports free for the node itself.
func (r *localRun) portsOf(name string) {
	r.reserving.Lock()
	defer r.reserving.Unlock()
	r.ports.release(name)
}

// signallerOf prefers the agent, which heals even when the supervisor is killed.
func (r *localRun) signallerOf(ctx context.Context, c *child) signaller {
	if r.agent != nil && c.known {
		p, err := r.agent.Own(ctx, c.process.PID, true)
		if err == nil && p == c.process {
			return throughAgent{agent: r.agent, process: p, without: direct{c.process}}
		}
	}
	return direct{c.process}
}

func (p *process) signaller(context.Context) (signaller, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := agent.Supported(); err != nil {
		return nil, err
	}
	return p.sig, nil
}

func (p *process) dial(ctx context.Context, port string) (net.Conn, error) {
	addr := p.node.Address(port)
	if addr == "" {
		return nil, fmt.Errorf("%s has no port %q", p.spec.Name, port)
	}
	d := net.Dialer{Timeout: 5 * time.Second}
	return d.DialContext(ctx, "tcp", addr)
}

// end kills the node's process, stopped or not, and waits until it is reaped.
func (p *process) end(ctx context.Context) error {
	p.mu.Lock()
	c := p.child
	p.mu.Unlock()
	if c == nil {
		return nil
	}
	p.node.thawAll(ctx) // a frozen process does not die
	return c.end(ctx, 0)
}

// command describes a child process.
type command struct {
	path     string
	argv     []string
	name     string
	node     int // index of its network namespace; -1 for the supervisor's own
	dir      string
	env      []string
	group    *group // nil: no limits
	stdio    bool
	log      *os.File
	survives bool // the death of the supervisor
}

// child is a process started by spawn.
type child struct {
	cmd     *exec.Cmd
	process agent.Process
	known   bool // process is filled in
	stdio   Stdio
	files   []*os.File // our ends
	over    *ending
}

// spawn starts a child process in a process group of its own, so that a Ctrl-C in the terminal reaches the supervisor
// alone.
func (r *localRun) spawn(c command) (*child, error) {
	cmd := &exec.Cmd{
		Path: c.path, Args: c.argv, Dir: c.dir, Env: r.environment(c.name, c.env), Stdout: c.log, Stderr: c.log,
		SysProcAttr: childAttributes(c.survives),
	}
	out := &child{cmd: cmd, over: newEnding()}
	var theirs []*os.File
	defer func() {
		for _, f := range theirs {
			_ = f.Close()
		}
	}()
	if c.stdio {
		stdinR, stdinW, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		theirs, out.files = append(theirs, stdinR), append(out.files, stdinW)
		stdoutR, stdoutW, err := blockingPipe()
		if err != nil {
			_ = stdinW.Close()
			return nil, err
		}
		theirs, out.files = append(theirs, stdoutW), append(out.files, stdoutR)
		cmd.Stdin, cmd.Stdout = stdinR, stdoutW
		out.stdio = Stdio{In: stdinW, Out: gather(stdoutR)}
	}
	if err := r.thread.start(cmd, seat{hub: r.net, node: c.node, group: c.group}); err != nil {
		out.closeFiles()
		return nil, err
	}
	if p, err := agent.Find(cmd.Process.Pid); err == nil {
		out.process, out.known = p, true
	}
	go func() {
		_ = cmd.Wait() // an exit status of its own is no failure of ours
		out.over.how = cmd.ProcessState.String()
		out.over.killed = strings.HasPrefix(out.over.how, "signal: killed")
		close(out.over.seen)
	}()
	return out, nil
}

// end waits for the process for the given time, kills it, and waits until it is reaped.
func (c *child) end(ctx context.Context, grace time.Duration) error {
	t := time.NewTimer(grace)
	defer t.Stop()
	select {
	case <-c.over.seen:
	case <-t.C:
	}
	defer c.closeFiles()
	if err := c.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill %s: %w", c.cmd.Path, err)
	}
	select {
	case <-c.over.seen:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("process %d (%s) does not die: %w", c.cmd.Process.Pid, c.cmd.Path, ctx.Err())
	}
}

func (c *child) closeFiles() {
	for _, f := range c.files {
		_ = f.Close()
	}
}
