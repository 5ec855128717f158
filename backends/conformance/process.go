package conformance

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/lock"
)

// childEnv passes a second process its job.
const childEnv = "LOCKQUAKE_CONFORMANCE_CHILD"

// job is what a second process has to do.
type job struct {
	Access backends.Access `json:"access"`
	Name   string          `json:"name"`  // of the lock
	Users  int             `json:"users"` // users that fight until standard input ends; 0: hold the lock until killed
}

// report is one line of output of a second process.
type report struct {
	Ready bool   `json:"ready,omitempty"` // it begins to fight
	Hold  *hold  `json:"hold,omitempty"`
	Valid int64  `json:"valid,omitempty"` // holding: the latest end of validity
	Error string `json:"error,omitempty"`
}

// atEnd are the functions to call after the last test, in reverse order.
var atEnd []func() error

// AtEnd has Main call end after the last test. The functions are called in reverse order.
func AtEnd(end func() error) { atEnd = append(atEnd, end) }

// Main is the TestMain for tests of one or more backends. A second process does its job instead of the tests.
func Main(m *testing.M, list ...backends.Backend) {
	if IsChild() {
		os.Exit(Child(os.Stdout, list...))
	}
	Parallel()
	code := m.Run()
	for _, end := range slices.Backward(atEnd) {
		if err := end(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// Parallel lets eight parallel tests run at once, unless the command line says otherwise: tests of the suite wait for
// clocks, not for CPU time. Call it before the tests are run.
func Parallel() { _ = flag.Set("test.parallel", strconv.Itoa(atOnce)) }

// IsChild reports whether this is a second process, with a job instead of the tests.
func IsChild() bool { return os.Getenv(childEnv) != "" }

// Child does that job and returns the exit code. It reports to w, the process's original standard output.
func Child(w io.Writer, list ...backends.Backend) int {
	out := json.NewEncoder(w)
	if err := child(context.Background(), list, out); err != nil {
		_ = out.Encode(report{Error: err.Error()})
		return 1
	}
	return 0
}

func child(ctx context.Context, list []backends.Backend, out *json.Encoder) error {
	var j job
	if err := json.Unmarshal([]byte(os.Getenv(childEnv)), &j); err != nil {
		return err
	}
	i := slices.IndexFunc(list, func(b backends.Backend) bool { return b.Name == j.Access.Backend })
	if i < 0 {
		return fmt.Errorf("these tests have no backend %q", j.Access.Backend)
	}
	bn, err := newBench(ctx, Options{Backend: list[i], Access: j.Access}, "child")
	if err != nil {
		return err
	}
	defer bn.close()
	bn.name = j.Name
	if j.Users == 0 {
		return holdForEver(ctx, bn, out)
	}
	users := make([]lock.Locker, j.Users)
	for i := range users {
		if users[i], err = bn.user(ctx); err != nil {
			return err
		}
	}
	if err := out.Encode(report{Ready: true}); err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = io.Copy(io.Discard, os.Stdin)
	}()
	var unsaid error
	_, err = fight(ctx, users, bn.request(), func(all []hold) bool {
		unsaid = errors.Join(unsaid, out.Encode(report{Hold: &all[len(all)-1]}))
		select {
		case <-ended:
			return true
		default:
			return unsaid != nil
		}
	})
	return errors.Join(err, unsaid)
}

// holdForEver reports every new end of its validity until it is killed.
func holdForEver(ctx context.Context, b *bench, out *json.Encoder) error {
	u, err := b.user(ctx)
	if err != nil {
		return err
	}
	g, err := b.grantWithin(ctx, u, soon, "the process to be killed")
	if err != nil {
		return err
	}
	end, _ := g.ValidUntil.Time()
	if err := out.Encode(report{Valid: clock.Of(end)}); err != nil {
		return err
	}
	if w, ok := u.(lock.Watcher); ok {
		for c := range w.Watch(ctx, g) {
			end, _ := c.ValidUntil.Time()
			if err := out.Encode(report{Valid: clock.Of(end)}); err != nil {
				return err
			}
		}
	}
	clock.Sleep(ctx, limit)
	return nil
}

// process is a running second process.
type process struct {
	cmd *exec.Cmd
	in  io.Closer
	out *bufio.Scanner
}

// spawn runs the test binary again.
func (o Options) spawn(ctx context.Context, j job) (*process, error) {
	text, err := json.Marshal(j)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, o.Again...)
	cmd.Env = append(os.Environ(), childEnv+"="+string(text))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &process{cmd: cmd, in: in, out: bufio.NewScanner(out)}, nil
}

// next returns the next report.
func (p *process) next() (report, error) {
	if !p.out.Scan() {
		if err := p.out.Err(); err != nil {
			return report{}, err
		}
		return report{}, io.EOF
	}
	var r report
	if err := json.Unmarshal(p.out.Bytes(), &r); err != nil {
		return r, fmt.Errorf("second process says %q: %w", p.out.Text(), err)
	}
	if r.Error != "" {
		return r, fmt.Errorf("second process: %s", r.Error)
	}
	return r, nil
}

// kill kills the process with SIGKILL and returns its reports so far.
func (p *process) kill() []report {
	_ = p.cmd.Process.Kill()
	var rest []report
	for {
		r, err := p.next()
		if err != nil {
			break
		}
		rest = append(rest, r)
	}
	_ = p.cmd.Wait()
	return rest
}

func needsProcesses(b *bench) string {
	if b.o.Backend.InProcess {
		return "the service lives in one process"
	}
	return ""
}

func exclusionProcesses(ctx context.Context, b *bench) error {
	users, err := b.crowd(ctx, 4)
	if err != nil {
		return err
	}
	p, err := b.o.spawn(ctx, job{Access: b.o.Access, Name: b.name, Users: len(users)})
	if err != nil {
		return err
	}
	if r, err := p.next(); err != nil || !r.Ready { // on a busy machine it may start when everything here is over
		p.kill()
		return fmt.Errorf("the second process did not begin: %w", orNil(err))
	}
	var (
		mu     sync.Mutex
		theirs []hold
		broken = make(chan error, 1) // why no more of them come
	)
	go func() {
		for {
			r, err := p.next()
			if err != nil {
				broken <- err
				return
			}
			mu.Lock()
			theirs = append(theirs, *r.Hold)
			mu.Unlock()
		}
	}()
	ours, err := fight(ctx, users, b.request(), func(all []hold) bool {
		mu.Lock()
		defer mu.Unlock()
		return len(broken) > 0 || len(all) >= leastGrants && len(theirs) >= leastGrants && together(all, theirs)
	})
	if err != nil {
		_ = p.cmd.Process.Kill()
	}
	_ = p.in.Close()
	last, ended := <-broken, p.cmd.Wait()
	switch {
	case err != nil:
		return err
	case !errors.Is(last, io.EOF):
		return last
	case ended != nil:
		return fmt.Errorf("second process: %w", ended)
	}
	if len(ours) < leastGrants || len(theirs) < leastGrants {
		return fmt.Errorf("%d grants here and %d there in %s: too few to judge", len(ours), len(theirs), patience)
	}
	if !together(ours, theirs) {
		return fmt.Errorf("the two processes did not compete at the same time within %s", patience)
	}
	return overlap(append(ours, theirs...))
}

// together reports whether one of our holds lies within the time span of theirs.
func together(ours, theirs []hold) bool {
	first, last := span(theirs)
	return slices.ContainsFunc(ours, func(h hold) bool { return h.Start > first && h.End < last })
}

func span(holds []hold) (first, last int64) {
	first = holds[0].Start
	for _, h := range holds {
		first, last = min(first, h.Start), max(last, h.End)
	}
	return first, last
}
