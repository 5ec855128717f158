package process

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/internal/wait"
)

// childEnv makes the test binary a server that answers "true" to every line: a real process, of several threads, that
// can be stopped and killed.
const childEnv = "LOCKQUAKE_CHAOS_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		child()
	}
	_ = flag.Set("test.parallel", "8") // unless told otherwise: tests that are parallel wait for clocks, not for a processor
	os.Exit(m.Run())
}

func child() {
	l, err := net.Listen("unix", os.Getenv(childEnv))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	go func() { // ends with the test
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	for {
		c, err := l.Accept()
		if err != nil {
			os.Exit(1)
		}
		go func() {
			defer c.Close()
			for s := bufio.NewScanner(c); s.Scan(); {
				fmt.Fprintln(c, "true")
			}
		}()
	}
}

// realProcess is a node that is a real child of the test.
type realProcess struct {
	t       *testing.T
	name    string
	address string
	once    bool // not to be started again
	cmd     *exec.Cmd
	exited  chan struct{}
}

var addresses atomic.Int32

func newProcess(t *testing.T, name string) *realProcess {
	t.Helper()
	// An abstract socket ends with its process, and unlike a free port nothing else takes its name meanwhile.
	p := &realProcess{t: t, name: name, address: fmt.Sprintf("@lockquake-chaos-%d-%d", os.Getpid(), addresses.Add(1))}
	if err := p.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.exited
	})
	if !answers(t, p) {
		t.Fatal("it does not answer")
	}
	return p
}

func (p *realProcess) Name() string { return p.name }

func (p *realProcess) Start(context.Context) error {
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), childEnv+"="+p.address)
	if _, err := cmd.StdinPipe(); err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	exited := make(chan struct{})
	p.cmd, p.exited = cmd, exited
	go func() {
		_ = cmd.Wait()
		close(exited)
	}()
	return nil
}

func (p *realProcess) Running() bool {
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

func (p *realProcess) Restartable() bool { return !p.once }

func (p *realProcess) Inspect(context.Context) (chaos.ProcessState, error) {
	state := chaos.ProcessState{Threads: map[string]int{}}
	if !p.Running() {
		return chaos.ProcessState{Time: clock.Now()}, nil
	}
	state.PID = p.cmd.Process.Pid
	files, err := filepath.Glob("/proc/" + strconv.Itoa(state.PID) + "/task/*/stat")
	if err != nil {
		return state, err
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			continue // the thread ended
		}
		_, rest, _ := strings.Cut(string(b), ") ")
		state.Threads[rest[:1]]++
	}
	if len(state.Threads) == 0 {
		state.PID = 0
	}
	state.Time = clock.Now()
	return state, nil
}

func (p *realProcess) until(ctx context.Context, want func(chaos.ProcessState) bool) (chaos.ProcessState, error) {
	for {
		s, err := p.Inspect(ctx)
		if err != nil || want(s) {
			return s, err
		}
		if err := clock.Sleep(ctx, time.Millisecond); err != nil {
			return s, err
		}
	}
}

func (p *realProcess) Pause(ctx context.Context) (chaos.ProcessState, error) {
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return chaos.ProcessState{}, err
	}
	return p.until(ctx, chaos.ProcessState.Stopped)
}

func (p *realProcess) Resume(ctx context.Context) (chaos.ProcessState, error) {
	if err := p.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		return chaos.ProcessState{}, err
	}
	return p.until(ctx, func(s chaos.ProcessState) bool { return s.Threads["T"] == 0 })
}

func (p *realProcess) Kill(ctx context.Context) (chaos.ProcessState, error) {
	if err := p.cmd.Process.Signal(syscall.SIGKILL); err != nil {
		return chaos.ProcessState{}, err
	}
	return p.until(ctx, chaos.ProcessState.Gone)
}

func (p *realProcess) Stop(ctx context.Context) (Ended, error) { return p.stopBy(ctx, syscall.SIGTERM) }

func (p *realProcess) stopBy(ctx context.Context, s syscall.Signal) (Ended, error) {
	exited := p.exited
	if err := p.cmd.Process.Signal(s); err != nil {
		return Ended{}, err
	}
	select {
	case <-exited:
		how := p.cmd.ProcessState.String()
		return Ended{Signal: "TERM", Gone: true, How: how, Killed: how == "signal: killed"}, nil
	case <-ctx.Done():
		return Ended{Signal: "TERM"}, nil
	}
}

// Facts makes the process its own service.
func (p *realProcess) Facts() map[string]string {
	return map[string]string{chaos.FactServes: "answers a line"}
}

// Ask asks for an answer over its socket.
func (p *realProcess) Ask(ctx context.Context, node, fact string) (string, error) {
	if node != p.name || fact != chaos.FactServes {
		return "", fmt.Errorf("no %s of %s", fact, node)
	}
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", p.address)
	if err != nil {
		return "", err
	}
	defer c.Close()
	if deadline, ok := ctx.Deadline(); ok {
		_ = c.SetDeadline(deadline)
	}
	fmt.Fprintln(c, "?")
	line, err := bufio.NewReader(c).ReadString('\n')
	return strings.TrimSpace(line), err
}

// mute reports whether the process does not answer within a moment. A stall can only hide an answer.
func mute(t *testing.T, p *realProcess) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	got, err := p.Ask(ctx, p.name, chaos.FactServes)
	return err != nil || got != "true"
}

// answers reports whether the process answers, however late.
func answers(t *testing.T, p *realProcess) bool {
	t.Helper()
	return wait.Within(time.Minute, func() bool { return !mute(t, p) })
}

// The saboteurs: nodes that say they did it.

type deafToPause struct{ *realProcess }

func (d deafToPause) Pause(context.Context) (chaos.ProcessState, error) {
	return chaos.ProcessState{PID: d.cmd.Process.Pid, Threads: map[string]int{"T": 1}, Time: clock.Now()}, nil
}

// gaveUp is stopped, but its Pause times out before that is seen.
type gaveUp struct{ *realProcess }

func (g gaveUp) Pause(ctx context.Context) (chaos.ProcessState, error) {
	if s, err := g.realProcess.Pause(ctx); err != nil {
		return s, err
	}
	return chaos.ProcessState{}, context.DeadlineExceeded
}

// Saboteurs that end in another way than asked, or not at all.
type (
	deafToStop struct{ *realProcess } // nothing was sent
	killed     struct{ *realProcess } // a SIGKILL comes from elsewhere
	unseen     struct{ *realProcess } // it ends, and its exit status is not seen
	hurried    struct{ *realProcess } // is given little time
)

func (d deafToStop) Stop(context.Context) (Ended, error) { return Ended{Signal: "TERM"}, nil }

func (k killed) Stop(ctx context.Context) (Ended, error) { return k.stopBy(ctx, syscall.SIGKILL) }

func (u unseen) Stop(ctx context.Context) (Ended, error) {
	e, err := u.realProcess.Stop(ctx)
	e.How = ""
	return e, err
}

func (h hurried) Stop(ctx context.Context) (Ended, error) {
	ctx, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	return h.realProcess.Stop(ctx)
}

type deafToKill struct{ *realProcess }

func (d deafToKill) Kill(context.Context) (chaos.ProcessState, error) {
	return chaos.ProcessState{Time: clock.Now()}, nil
}

type deafToResume struct{ *realProcess }

func (d deafToResume) Resume(context.Context) (chaos.ProcessState, error) {
	return chaos.ProcessState{}, nil
}

// neverBack is killed like any other, but its replacement never serves.
type neverBack struct{ *realProcess }

func (d neverBack) Start(context.Context) error { return errors.New("no such binary") }

// late delays its next start; left is the time that the caller of Start had for it.
type late struct {
	*realProcess
	delay, left time.Duration
}

func (l *late) StartDelay() time.Duration { return l.delay }

func (l *late) Start(ctx context.Context) error {
	deadline, _ := ctx.Deadline()
	l.left = time.Until(deadline)
	return l.realProcess.Start(ctx)
}
