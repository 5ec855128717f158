package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/internal/wait"
	"github.com/lockquake/lockquake/internal/wire"
	"github.com/lockquake/lockquake/workloads"
	"github.com/lockquake/lockquake/workloads/resource/register"
)

// envToy makes this test binary a client process with a toy of the named kind.
const envToy = "LOCKQUAKE_TEST_TOY"

func TestMain(m *testing.M) {
	if kind, ok := os.LookupEnv(envToy); ok {
		t := newToy()
		switch kind {
		case "deaf":
			t.deaf = true
		case "dies-in-release":
			t.onRelease = func() { _ = syscall.Kill(os.Getpid(), syscall.SIGKILL); select {} }
		}
		if err := Main(context.Background(), options(t, os.Stdin, os.Stdout)); err != nil {
			os.Exit(3)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

func options(t *toy, in io.Reader, out io.Writer) Options {
	return Options{
		Backends: []backends.Backend{t.backend()}, Workloads: append(workloads.All(), suicide), Resources: register.Kinds(),
		In: in, Out: out, Version: "test",
	}
}

// patience only ends a test that hangs.
const patience = time.Minute

// rig is the supervisor's side of one client.
type rig struct {
	t      *testing.T
	conn   *wire.Conn
	stdin  io.WriteCloser
	stdout *io.PipeReader // of a client in this process
	frames chan *wire.Frame
	ended  chan struct{} // the stream is read to its end
	mu     sync.Mutex    // of events, until the stream has ended
	events []history.Event
	err    error // of the stream
	result chan error
	id     int
	still  sync.Mutex // held while the supervisor does not read
}

// inside runs a client in this process.
func inside(t *testing.T, y *toy) *rig {
	t.Helper()
	toClient, stdin := io.Pipe()
	stdout, fromClient := io.Pipe()
	r := newRig(t, stdin, stdout)
	r.stdout = stdout
	o := options(y, toClient, fromClient)
	o.InProcess = true
	go func() { r.result <- Main(context.Background(), o) }()
	return r
}

// child runs a client in a child process.
func child(t *testing.T, kind string) (*rig, *exec.Cmd) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), envToy+"="+kind)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r := newRig(t, stdin, stdout)
	go func() {
		<-r.ended
		r.result <- cmd.Wait()
	}()
	return r, cmd
}

func newRig(t *testing.T, stdin io.WriteCloser, stdout io.Reader) *rig {
	r := &rig{
		t: t, conn: wire.NewConn(stdout, stdin), stdin: stdin, frames: make(chan *wire.Frame, 1000), ended: make(chan struct{}),
		result: make(chan error, 1),
	}
	go func() {
		defer close(r.ended)
		defer close(r.frames)
		for {
			r.still.Lock()
			r.still.Unlock() //nolint:staticcheck // it only waits
			item, err := r.conn.Receive()
			if err != nil {
				if !errors.Is(err, io.EOF) {
					r.err = err
				}
				return
			}
			r.mu.Lock()
			r.events = append(r.events, item.Events...)
			r.mu.Unlock()
			if item.Frame != nil {
				r.frames <- item.Frame
			}
		}
	}()
	t.Cleanup(func() { _ = r.conn.Close(); <-r.ended })
	return r
}

// frame waits for the next frame, which must be of this type.
func (r *rig) frame(kind string) *wire.Frame {
	r.t.Helper()
	select {
	case f, ok := <-r.frames:
		switch {
		case !ok:
			r.t.Fatalf("the stream ended where %s was to come", kind)
		case f.Type == wire.TypeFailed && kind != f.Type:
			r.t.Fatalf("got failed (%s), want %s", f.Failed.Error, kind)
		case f.Type != kind:
			r.t.Fatalf("got %s, want %s", f.Type, kind)
		}
		return f
	case <-time.After(patience):
		r.t.Fatalf("no %s", kind)
		return nil
	}
}

// await waits for n events of one kind and phase.
func (r *rig) await(n int, k history.Kind, p history.Phase) {
	r.t.Helper()
	r.until(fmt.Sprintf("%d times %v %v", n, k, p), func(events []history.Event) bool { return len(find(events, k, p)) >= n })
}

// until waits until ok accepts the events that came so far.
func (r *rig) until(what string, ok func(events []history.Event) bool) {
	r.t.Helper()
	wait.Until(r.t, patience, what, func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return ok(r.events)
	})
}

func (r *rig) send(f wire.Frame) {
	r.t.Helper()
	if err := r.conn.Send(f); err != nil {
		r.t.Fatal(err)
	}
}

// aStart returns the start frame of client-2 with the toy, in command mode.
func aStart(change func(*wire.Start)) *wire.Start {
	access, err := json.Marshal(backends.Access{Backend: "toy", Lock: "plain", TTL: time.Minute})
	if err != nil {
		panic(err)
	}
	st := &wire.Start{
		Name: "client-2", Index: 1, Format: wire.FormatRecords, Seed: 7, Locks: []string{"lock-0", "lock-1"}, Access: access,
		Timeout: int64(5 * time.Second), Record: true,
	}
	if change != nil {
		change(st)
	}
	return st
}

// begin takes a client from its hello to its go.
func (r *rig) begin(change func(*wire.Start)) {
	r.t.Helper()
	h := r.frame(wire.TypeHello).Hello
	if h.BootID != clock.BootID() || h.TimeNS != clock.TimeNamespace() || h.Software != "test" || h.PID == 0 {
		r.t.Errorf("hello is %+v", h)
	}
	r.send(wire.Frame{Type: wire.TypeStart, Start: aStart(change)})
	r.frame(wire.TypeReady)
	r.send(wire.Frame{Type: wire.TypeGo, Go: &wire.Go{Time: clock.Now()}})
}

// order sends a command.
func (r *rig) order(c wire.Command) int {
	r.t.Helper()
	r.id++
	c.ID = r.id
	r.send(wire.Frame{Type: wire.TypeCommand, Command: &c})
	return r.id
}

// do sends a command and waits for its result.
func (r *rig) do(c wire.Command) wire.Result {
	r.t.Helper()
	id := r.order(c)
	a := r.frame(wire.TypeResult).Result
	if a.ID != id {
		r.t.Fatalf("result %d where %d was to come", a.ID, id)
	}
	return *a
}

// must is do for an order that must have this outcome.
func (r *rig) must(outcome string, c wire.Command) wire.Result {
	r.t.Helper()
	a := r.do(c)
	if a.Outcome != outcome {
		r.t.Fatalf("%s: got %s (%s), want %s", c.Do, a.Outcome, a.Error, outcome)
	}
	return a
}

// stop ends the client and checks that its history is whole.
func (r *rig) stop() wire.Done {
	r.t.Helper()
	r.send(wire.Frame{Type: wire.TypeStop})
	d := r.frame(wire.TypeDone).Done
	if err := <-r.result; err != nil {
		r.t.Errorf("the client ended with %v", err)
	}
	<-r.ended
	if r.err != nil {
		r.t.Errorf("the stream broke: %v", r.err)
	}
	if int64(len(r.events)) != d.Recorded || d.Dropped != 0 {
		r.t.Errorf("%d events came of %d, %d were dropped", len(r.events), d.Recorded, d.Dropped)
	}
	checkOrder(r.t, r.events)
	return *d
}

// checkOrder checks numbers and times, and that each end of an operation follows its invoke.
func checkOrder(t *testing.T, events []history.Event) {
	t.Helper()
	for i, e := range events {
		if e.Seq != uint32(i+1) || i > 0 && e.Time < events[i-1].Time {
			t.Fatalf("event %d is out of order: %+v", i, e)
		}
		if e.Op == e.Seq || (e.Kind == history.Reason || e.Kind == history.Cancel) && e.Op > 0 && events[e.Op-1].User == e.User {
			continue
		}
		if e.Op == 0 || e.Op > e.Seq {
			t.Fatalf("%+v ends an operation that has not begun", e)
		}
		if b := events[e.Op-1]; b.Kind != e.Kind || b.Phase != history.Invoke || b.User != e.User || b.Lock != e.Lock {
			t.Fatalf("%+v does not fit its invoke %+v", e, b)
		}
	}
}

// find returns the events of one kind and phase.
func find(events []history.Event, k history.Kind, p history.Phase) (found []history.Event) {
	for _, e := range events {
		if e.Kind == k && e.Phase == p {
			found = append(found, e)
		}
	}
	return found
}
