package chaos

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
	"syscall"
	"testing"
	"time"

	"github.com/lockquake/lockquake/internal/clock"
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
	l, err := net.Listen("tcp", os.Getenv(childEnv))
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

// process is a node that is a real child of the test.
type process struct {
	t       *testing.T
	name    string
	address string
	once    bool // not to be started again
	cmd     *exec.Cmd
	exited  chan struct{}
}

func newProcess(t *testing.T, name string) *process {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, name: name, address: l.Addr().String()}
	l.Close()
	if err := p.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.exited
	})
	if err := serves(t.Context(), p, name); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *process) Name() string { return p.name }

func (p *process) Start(context.Context) error {
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

func (p *process) Running() bool {
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

func (p *process) Restartable() bool { return !p.once }

func (p *process) Inspect(context.Context) (ProcessState, error) {
	state := ProcessState{Threads: map[string]int{}}
	if !p.Running() {
		return ProcessState{Time: clock.Now()}, nil
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

func (p *process) until(ctx context.Context, want func(ProcessState) bool) (ProcessState, error) {
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

func (p *process) Pause(ctx context.Context) (ProcessState, error) {
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return ProcessState{}, err
	}
	return p.until(ctx, ProcessState.Stopped)
}

func (p *process) Resume(ctx context.Context) (ProcessState, error) {
	if err := p.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		return ProcessState{}, err
	}
	return p.until(ctx, func(s ProcessState) bool { return s.Threads["T"] == 0 })
}

func (p *process) Kill(ctx context.Context) (ProcessState, error) {
	if err := p.cmd.Process.Signal(syscall.SIGKILL); err != nil {
		return ProcessState{}, err
	}
	return p.until(ctx, ProcessState.Gone)
}

func (p *process) Stop(ctx context.Context) (Ended, error) { return p.stopBy(ctx, syscall.SIGTERM) }

func (p *process) stopBy(ctx context.Context, s syscall.Signal) (Ended, error) {
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
func (p *process) Facts() map[string]string { return map[string]string{FactServes: "answers a line"} }

// Ask asks for an answer over TCP.
func (p *process) Ask(ctx context.Context, node, fact string) (string, error) {
	if node != p.name || fact != FactServes {
		return "", fmt.Errorf("no %s of %s", fact, node)
	}
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", p.address)
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

// answers tells whether the process answers within a moment.
func answers(t *testing.T, p *process) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	got, err := p.Ask(ctx, p.name, FactServes)
	return err == nil && got == "true"
}

// The saboteurs: nodes that say they did it.

type deafToPause struct{ *process }

func (d deafToPause) Pause(context.Context) (ProcessState, error) {
	return ProcessState{PID: d.cmd.Process.Pid, Threads: map[string]int{"T": 1}, Time: clock.Now()}, nil
}

// gaveUp is stopped, but whoever stopped it lost patience before that was seen.
type gaveUp struct{ *process }

func (g gaveUp) Pause(ctx context.Context) (ProcessState, error) {
	if s, err := g.process.Pause(ctx); err != nil {
		return s, err
	}
	return ProcessState{}, context.DeadlineExceeded
}

// Those that end otherwise than asked, or not.
type (
	deafToStop struct{ *process } // nothing was sent
	killed     struct{ *process } // somebody sends a SIGKILL
	unseen     struct{ *process } // it ends, and nobody sees how
	hurried    struct{ *process } // is given little time
)

func (d deafToStop) Stop(context.Context) (Ended, error) { return Ended{Signal: "TERM"}, nil }

func (k killed) Stop(ctx context.Context) (Ended, error) { return k.stopBy(ctx, syscall.SIGKILL) }

func (u unseen) Stop(ctx context.Context) (Ended, error) {
	e, err := u.process.Stop(ctx)
	e.How = ""
	return e, err
}

func (h hurried) Stop(ctx context.Context) (Ended, error) {
	ctx, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	return h.process.Stop(ctx)
}

type deafToKill struct{ *process }

func (d deafToKill) Kill(context.Context) (ProcessState, error) {
	return ProcessState{Time: clock.Now()}, nil
}

type deafToResume struct{ *process }

func (d deafToResume) Resume(context.Context) (ProcessState, error) { return ProcessState{}, nil }

// neverBack is killed like any other, but what is started in its place never serves.
type neverBack struct{ *process }

func (d neverBack) Start(context.Context) error { return errors.New("no such binary") }

// late puts its next start off; left is the time that whoever started it had for that.
type late struct {
	*process
	delay, left time.Duration
}

func (l *late) StartDelay() time.Duration { return l.delay }

func (l *late) Start(ctx context.Context) error {
	deadline, _ := ctx.Deadline()
	l.left = time.Until(deadline)
	return l.process.Start(ctx)
}
