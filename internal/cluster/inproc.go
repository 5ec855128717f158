package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/chaos/process"
	"github.com/lockquake/lockquake/internal/cluster/address"
	"github.com/lockquake/lockquake/internal/cluster/nodelog"
	"github.com/lockquake/lockquake/internal/cluster/owner"
	"github.com/lockquake/lockquake/internal/cluster/state"
	"github.com/lockquake/lockquake/internal/node"
)

// inproc is the provider of goroutines.
type inproc struct {
	main   func(ctx context.Context, args []string, stdin io.Reader, stdout io.Writer) error
	kernel *FakeKernel
}

// FakeKernel stands in for the kernel in tests: it handles the signals to nodes that are goroutines, so that a test can
// stop or kill a node at an exact moment. It is in this package because only its providers make nodes.
type FakeKernel struct {
	Signal  func(node, name string) error // "STOP", "CONT", "KILL", "TERM", "INT"
	Inspect func(node string) chaos.ProcessState
}

// NewInprocOn is NewInproc with nodes that can be inspected and signalled through the fake kernel.
func NewInprocOn(main func(ctx context.Context, args []string, stdin io.Reader, stdout io.Writer) error,
	h FakeKernel,
) Provider {
	return &inproc{main: main, kernel: &h}
}

// NewInproc returns a provider whose nodes are goroutines of this process, over pipes. main is called with a node's
// command without its first word, and its return ends the node. No fault can act on such a node from outside.
func NewInproc(main func(ctx context.Context, args []string, stdin io.Reader, stdout io.Writer) error) Provider {
	return &inproc{main: main}
}

// Name returns "inproc".
func (p *inproc) Name() string { return "inproc" }

// Offers always returns an error: a goroutine has no process of its own.
func (p *inproc) Offers(c chaos.Capability, _ node.Role) error {
	if p.kernel != nil && (c == chaos.CanInspect || c == chaos.CanPause || c == process.CanKill) {
		return nil
	}
	return noProcess(string(c))
}

func noProcess(what string) error {
	return chaos.Unavailable{
		What:   what,
		Reason: "nodes of the memory backend are goroutines of the supervisor, which cannot be stopped, killed or limited one by one; use another backend",
	}
}

// Open places the nodes on free ports of the loopback address.
func (p *inproc) Open(_ context.Context, r Request) (*Cluster, error) {
	r, err := r.checked()
	if err != nil {
		return nil, err
	}
	for _, s := range r.Specs {
		if words := s.Command(node.Place{}); len(words) > 0 && words[0] != node.SelfProgram {
			return nil, fmt.Errorf("%s runs %s, which cannot be a goroutine", s.Name, words[0])
		}
	}
	logs, err := nodelog.Open(r.LogDir)
	if err != nil {
		return nil, err
	}
	dir, err := state.Make(owner.Self(r.Run, false))
	if err != nil {
		return nil, err
	}
	place, ports, err := address.Loopback(r.Specs)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	run := &inprocRun{main: p.main, kernel: p.kernel, dir: dir, logs: logs, place: place, ports: ports}
	run.ctx, run.cancel = context.WithCancel(context.Background())
	c := &Cluster{close: run.close, Describe: map[string]string{"provider": "inproc", "network": "loopback"}}
	if r.Reuse {
		c.keeper = run
	}
	run.makeNodes(c, r.Specs, 0)
	return c, nil
}

// inprocRun has the goroutines of one run.
type inprocRun struct {
	main   func(ctx context.Context, args []string, stdin io.Reader, stdout io.Writer) error
	kernel *FakeKernel     // nil: nodes cannot be signalled
	ctx    context.Context // ends at Close
	cancel context.CancelFunc
	dir    string
	logs   *nodelog.Logs
	place  node.Place
	nodes  []*Node

	mu    sync.Mutex
	ports address.Reservation
}

// makeNodes makes the nodes from that number on.
func (r *inprocRun) makeNodes(c *Cluster, specs []node.Spec, from int) {
	var made []*Node
	for _, spec := range specs[from:] {
		n := newNode(spec, r.place.Of(spec.Name, filepath.Join(r.dir, spec.Name)))
		n.driver = &routine{run: r, node: n}
		made = append(made, n)
	}
	c.replaceNodes(from, made)
	r.nodes = c.Nodes
}

func (r *inprocRun) nodeLogs() *nodelog.Logs { return r.logs }

func (r *inprocRun) vacate(ctx context.Context, n *Node) error {
	return errors.Join(n.driver.(*routine).end(ctx), os.RemoveAll(n.place.Dir))
}

func (r *inprocRun) renew(_ context.Context, c *Cluster, next Request, from int) error {
	for _, s := range next.Specs[from:] {
		if err := r.ports.Place(r.place, s); err != nil {
			return err
		}
	}
	r.makeNodes(c, next.Specs, from)
	return nil
}

func (r *inprocRun) close(ctx context.Context) error {
	r.cancel()
	r.mu.Lock()
	r.ports.Release()
	r.mu.Unlock()
	for _, n := range r.nodes {
		if err := n.driver.(*routine).end(ctx); err != nil {
			return err
		}
	}
	return os.RemoveAll(r.dir)
}

// tell writes to a node's log why it ended.
func (r *inprocRun) tell(node string, why error) {
	if f, err := r.logs.File(node); err == nil {
		_, _ = fmt.Fprintln(f, why)
		_ = f.Close()
	}
}

// routine drives one node as a goroutine.
type routine struct {
	run  *inprocRun
	node *Node

	mu    sync.Mutex
	stop  []context.CancelFunc
	pipes []io.Closer
	ends  []*ending
}

// end ends the node, and waits for it.
func (t *routine) end(ctx context.Context) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, stop := range t.stop {
		stop()
	}
	for _, p := range t.pipes {
		_ = p.Close()
	}
	for _, e := range t.ends {
		select {
		case <-e.seen:
		case <-ctx.Done():
			return fmt.Errorf("a node does not end: %w", ctx.Err())
		}
	}
	return nil
}

func (t *routine) start(context.Context) (Stdio, *ending, error) {
	if t.run.ctx.Err() != nil {
		return Stdio{}, nil, errors.New("the run is closed")
	}
	argv := t.node.spec.Command(t.node.place)
	if len(argv) == 0 {
		return Stdio{}, nil, errors.New("its command is empty")
	}
	if err := os.MkdirAll(t.node.place.Dir, 0o700); err != nil {
		return Stdio{}, nil, fmt.Errorf("make its data directory: %w", err)
	}
	t.run.mu.Lock()
	t.run.ports.Release(t.node.Name())
	t.run.mu.Unlock()
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	over := newEnding()
	ctx, stop := context.WithCancel(t.run.ctx)
	t.mu.Lock()
	t.stop, t.pipes, t.ends = append(t.stop, stop), append(t.pipes, inW, outR), append(t.ends, over)
	t.mu.Unlock()
	go func() {
		defer close(over.seen)
		err := t.run.main(ctx, argv[1:], inR, outW)
		_ = outW.Close()
		_ = inR.Close()
		over.how = "its function returned"
		if err != nil {
			over.how = err.Error()
			t.run.tell(t.node.Name(), err)
		}
	}()
	if !t.node.spec.Stdio {
		_ = inW.Close()
		go func() { _, _ = io.Copy(io.Discard, outR) }()
		return Stdio{}, over, nil
	}
	return Stdio{In: inW, Out: outR}, over, nil
}

func (t *routine) dial(ctx context.Context, _, address string) (net.Conn, error) {
	return dialer.DialContext(ctx, "tcp", address)
}

func (t *routine) signaller(context.Context) (signaller, error) {
	if h := t.run.kernel; h != nil {
		return fakeProcess{t.node.Name(), h}, nil
	}
	return nil, noProcess("a signal to " + t.node.Name())
}

// fakeProcess signals a node through the test's FakeKernel.
type fakeProcess struct {
	node   string
	kernel *FakeKernel
}

func (h fakeProcess) inspect(context.Context) (chaos.ProcessState, error) {
	return h.kernel.Inspect(h.node), nil
}

func (h fakeProcess) signal(_ context.Context, name string) error {
	return h.kernel.Signal(h.node, name)
}
