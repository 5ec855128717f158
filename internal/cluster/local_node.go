package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockquake/lockquake/chaos/process"
	"github.com/lockquake/lockquake/internal/agent/proc"
	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/internal/cluster/executable"
	"github.com/lockquake/lockquake/internal/cluster/identity"
	"github.com/lockquake/lockquake/internal/cluster/limits"
	"github.com/lockquake/lockquake/internal/cluster/pipe"
	"github.com/lockquake/lockquake/internal/cluster/placement"
	"github.com/lockquake/lockquake/internal/cluster/processes"
	"github.com/lockquake/lockquake/internal/node"
)

// localNode drives one node as a child process.
type localNode struct {
	run      *localRun
	spec     node.Spec
	node     *Node
	index    int
	path     string
	argv     []string
	group    *limits.Group // nil: no limits
	prepared prepared

	mu    sync.Mutex
	child *child // the last started one
	sig   signaller
}

// newProcess finds the node's program, so that a missing one is reported before anything starts.
func (r *localRun) newProcess(ctx context.Context, n *Node, index int) (*localNode, error) {
	argv := n.spec.Command(n.place)
	if len(argv) == 0 {
		return nil, fmt.Errorf("the command of %s is empty", n.Name())
	}
	path, err := executable.Find(argv[0], r.provider.options.Self)
	if err != nil {
		return nil, err
	}
	done, err := prepareNode(ctx, r, n, localPreparations)
	r.reserving.Lock()
	r.unprepare = append(r.unprepare, done.undo)
	r.reserving.Unlock()
	if err != nil {
		return nil, err
	}
	return &localNode{run: r, spec: n.spec, node: n, index: index, path: path, argv: argv, prepared: done}, nil
}

// limited reports whether the process has a control group of its own.
func (p *localNode) limited() bool { return p.group != nil }

func (p *localNode) start(ctx context.Context) (Stdio, *ending, error) {
	logFile, err := p.run.logs.ForChild(p.spec.Name, p.spec.Stdio || p.run.request.Reuse && p.spec.Role == node.Server)
	if err != nil {
		return Stdio{}, nil, err
	}
	defer func() { _ = logFile.Close() }()
	if err := runHook(ctx, p.prepared.before); err != nil {
		return Stdio{}, nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.run.reserving.Lock()
	p.run.ports.Release(p.spec.Name) // for use by the node itself
	p.run.reserving.Unlock()
	user := p.run.identityOf(p.spec.Role)
	path, argv, err := p.onDisk(p.path, p.argv, user)
	if err != nil {
		return Stdio{}, nil, err
	}
	if p.node.Disk.loop != nil {
		user = 0 // only root can mount; on-disk then switches to that user
	}
	c, err := p.run.spawn(command{
		path: path, argv: argv, user: user, name: p.spec.Name, node: p.index, dir: p.node.place.Dir,
		env:   slices.Concat(p.spec.Env, p.prepared.env),
		group: p.group, stdio: p.spec.Stdio, log: logFile, alone: p.spec.Alike,
	})
	if err != nil {
		return Stdio{}, nil, err
	}
	p.child = c
	p.sig = p.run.signallerOf(ctx, c)
	return c.stdio, c.over, nil
}

// signallerOf prefers the agent, which heals even if the supervisor is killed.
func (r *localRun) signallerOf(ctx context.Context, c *child) signaller {
	d := direct{process: c.process, why: r.agentErr}
	if r.agent == nil || !c.known {
		return d
	}
	p, err := r.agent.Own(ctx, c.process.PID, true)
	switch {
	case err != nil:
		d.why = err
	case p != c.process:
		d.why = fmt.Errorf("pid %d is a different process there", c.process.PID)
	default:
		return throughAgent{agent: r.agent, process: p, without: d}
	}
	return d
}

func (p *localNode) signaller(context.Context) (signaller, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := proc.Supported(); err != nil {
		return nil, err
	}
	return p.sig, nil
}

func (p *localNode) dial(ctx context.Context, _, address string) (net.Conn, error) {
	if p.run.net != nil {
		return p.run.net.Dial(ctx, dialer, address)
	}
	return dialer.DialContext(ctx, "tcp", address)
}

// end kills the node's process, stopped or not, and waits until it is reaped.
func (p *localNode) end(ctx context.Context) error {
	p.mu.Lock()
	c := p.child
	p.mu.Unlock()
	if c == nil {
		return nil
	}
	p.node.Signals.thawAll(ctx) // a frozen process does not die
	return c.end(ctx, 0)
}

// command describes a child process.
type command struct {
	path     string
	argv     []string
	user     identity.User
	name     string
	node     int // index of its network namespace; -1 for the supervisor's own
	dir      string
	env      []string
	group    *limits.Group // nil: no limits
	stdio    bool
	log      *os.File
	survives bool // whether it survives the supervisor
	alone    bool // in a process namespace of its own
}

// child is a process started by spawn.
type child struct {
	cmd     *exec.Cmd
	process proc.Process
	known   bool // process is filled in
	stdio   Stdio
	output  *pipe.Reader // of stdio; nil without
	files   []*os.File   // our ends
	over    *ending
}

// spawn starts a child process in a process group of its own, so that a Ctrl-C in the terminal reaches the supervisor
// alone.
func (r *localRun) spawn(c command) (*child, error) {
	cmd := &exec.Cmd{
		Path: c.path, Args: c.argv, Dir: c.dir, Env: r.environment(c), Stdout: c.log, Stderr: c.log,
		SysProcAttr: placement.Attributes(c.survives),
	}
	c.user.Take(cmd.SysProcAttr)
	if c.alone {
		placement.Alone(cmd.SysProcAttr)
	}
	out := &child{over: newEnding()}
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
		stdoutR, stdoutW, err := pipe.New()
		if err != nil {
			_ = stdinW.Close()
			return nil, err
		}
		theirs, out.files = append(theirs, stdoutW), append(out.files, stdoutR)
		cmd.Stdin, cmd.Stdout = stdinR, stdoutW
		out.output = pipe.NewReader(stdoutR)
		out.stdio = Stdio{In: stdinW, Out: pipe.Batched(out.output)}
	}
	network := r.net.Network(c.node)
	var err error
	if out.cmd, err = r.startAs(c, cmd); err != nil {
		out.closeFiles()
		return nil, err
	}
	cmd = out.cmd
	if p, err := proc.Find(cmd.Process.Pid); err == nil {
		out.process, out.known = p, true
	}
	go func() {
		_ = cmd.Wait() // its exit status is not our failure
		out.over.how = cmd.ProcessState.String()
		out.over.killed = strings.HasPrefix(out.over.how, "signal: killed")
		// This comes first: the node's next process starts in the same place.
		out.over.left = endOutlived(func() []proc.Process { return processes.Outlived(r.owner, c.name, network) })
		close(out.over.seen)
		if out.output != nil && !out.output.ReleasedWithin(outputOutlives) {
			r.provider.log.Warn("its output was closed: a process that outlived it held it open",
				"node", c.name, "for", outputOutlives)
		}
	}()
	return out, nil
}

// killsWithin bounds the kills of what a process left behind.
const killsWithin = 2 * time.Second

// endOutlived kills the processes that a process left behind, and those that they start meanwhile, and waits until all
// have ended. It describes them; "" if there were none. So a node ends as a container does: with its first process.
//
// A dying process loses its memory and namespaces, by which find recognizes it, before it ends. So once found, a
// process is awaited by its pid.
func endOutlived(find func() []proc.Process) string {
	var killed []string
	seen := map[proc.Process]bool{}
	for until := clock.Now() + int64(killsWithin); ; time.Sleep(time.Millisecond) {
		found := find()
		for _, p := range found {
			if !seen[p] {
				seen[p], killed = true, append(killed, fmt.Sprintf("%s (pid %d)", p.Command(), p.PID))
			}
			_ = p.Signal("KILL") // if the kill fails, it is found again
		}
		left := 0
		for p := range seen {
			if p.Running() {
				left++
			}
		}
		switch {
		case len(killed) == 0:
			return ""
		case len(found)+left == 0:
			return "its leftover processes were killed: " + listed(killed)
		case clock.Now() > until:
			return fmt.Sprintf("%d of its leftover processes could not be killed: %s", left, listed(killed))
		}
	}
}

// listed joins names, and cuts a long list.
func listed(names []string) string {
	const most = 6
	if len(names) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}

// startAs starts a command. If the user may not enter the program's directory, such as root's home, the program is
// passed as an open file.
func (r *localRun) startAs(c command, cmd *exec.Cmd) (*exec.Cmd, error) {
	place := placement.Place{Hub: r.net, Node: c.node, Group: c.group}
	attributes := *cmd.SysProcAttr // start adds to them
	from := r.thread
	if c.user != 0 {
		from = r.confined
	}
	err := place.Start(from, cmd)
	if c.user == 0 || !errors.Is(err, fs.ErrPermission) {
		return cmd, err
	}
	f, err := os.Open(c.path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	again := &exec.Cmd{
		Path: "/proc/self/fd/3", ExtraFiles: []*os.File{f}, // the first of these is number 3
		Args: cmd.Args, Dir: cmd.Dir, Env: cmd.Env, Stdin: cmd.Stdin, Stdout: cmd.Stdout, Stderr: cmd.Stderr,
		SysProcAttr: &attributes,
	}
	if err := place.Start(from, again); err != nil {
		return nil, fmt.Errorf("as user %d, who may lack access to %s or %s: %w", c.user, c.path, c.dir, err)
	}
	return again, nil
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

// outputOutlives is how long a control stream may stay open after its process has ended. The rest of the pipe is read
// within it.
const outputOutlives = 5 * time.Second

// used returns the CPU time of the process and its descendants.
func (p *localNode) used(context.Context) (time.Duration, error) {
	p.mu.Lock()
	c := p.child
	p.mu.Unlock()
	if c == nil {
		return 0, proc.ErrNoProcess
	}
	return proc.CPU(c.cmd.Process.Pid)
}

// footprint returns the resource usage of the process and its descendants.
func (p *localNode) footprint(context.Context) (proc.Footprint, error) {
	p.mu.Lock()
	c := p.child
	p.mu.Unlock()
	if c == nil {
		return proc.Footprint{}, proc.ErrNoProcess
	}
	return proc.FootprintOf(c.cmd.Process.Pid)
}

// freeze makes the agent put the process into a control group and freeze it.
func (p *localNode) freeze(ctx context.Context) error {
	ctx, done := clock.Act(ctx)
	defer done()
	return p.node.Signals.freezing.give(ctx, process.FreezeArgs{})
}

func (p *localNode) thaw(ctx context.Context) error {
	ctx, done := clock.Act(ctx)
	defer done()
	return p.node.Signals.freezing.undo(ctx)
}

func (p *localNode) frozen(context.Context) (process.Frozen, error) {
	return process.Frozen{Said: "there is no agent to ask", Unseen: "there is no agent to ask", Time: clock.Now()}, nil
}

// dataHere returns the node's data directory.
func (p *localNode) dataHere() string { return p.node.place.Dir }
