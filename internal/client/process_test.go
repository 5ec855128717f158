package client

import (
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/internal/wire"
	"github.com/lockquake/lockquake/workloads"
)

// killed waits for a child that must die by SIGKILL.
func (r *rig) killed() {
	r.t.Helper()
	select {
	case <-r.ended:
	case <-time.After(patience):
		r.t.Fatal("the client lives on")
	}
	var exit *exec.ExitError
	if err := <-r.result; !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		r.t.Errorf("the client ended with %v", err)
	}
}

// A user that goes on after an acquire has its grant on the stream, even if its process dies that instant.
func TestAcquireIsOnTheStreamBeforeTheUserGoesOn(t *testing.T) {
	for range 5 {
		r, _ := child(t, "plain")
		r.begin(func(s *wire.Start) {
			s.Workload = &wire.Workload{Use: "suicide", Users: 1, Total: 1}
		})
		r.killed()
		if got := find(r.events, history.Acquire, history.Ok); len(got) != 1 {
			t.Fatalf("the history ends with %+v", r.events)
		}
		checkOrder(t, r.events)
	}
}

// A release that the service may have seen is on the stream, and so is its grant, though it was released at once.
func TestReleaseIsOnTheStreamBeforeItIsSent(t *testing.T) {
	for range 5 {
		r, _ := child(t, "dies-in-release")
		r.begin(withWorkload("acquire-release", "{}", 1))
		r.killed()
		if len(find(r.events, history.Acquire, history.Ok)) != 1 || len(find(r.events, history.Release, history.Invoke)) != 1 {
			t.Fatalf("the history ends with %+v", r.events)
		}
	}
}

func TestDieAtPoint(t *testing.T) {
	r, _ := child(t, "plain")
	r.begin(nil)
	r.must(wire.OutcomeOK, wire.Command{Do: wire.DoArm, Point: workloads.PointRelease, Action: wire.ActionDie})
	r.must(wire.OutcomeOK, wire.Command{Do: wire.DoAcquire})
	r.order(wire.Command{Do: wire.DoRelease})
	if p := r.frame(wire.TypePoint).Point; p.Point != workloads.PointRelease {
		t.Errorf("point is %+v", p)
	}
	r.killed()
	if len(find(r.events, history.Acquire, history.Ok)) != 1 || len(find(r.events, history.Release, history.Invoke)) != 0 {
		t.Errorf("the history is %+v", r.events)
	}
}

// A client whose supervisor is gone ends whatever it does: here a user sits in a call that never returns. The exact
// bound of 2 s is tested in wire's TestANodeEndsWithinItsGrace. This bound only finds a client that adds much to it.
func TestEndOfInputEndsTheClient(t *testing.T) {
	const promised, room = 2 * time.Second, 3 * time.Second // of a machine that is busy, as in clientcheck
	for _, kind := range []string{"plain", "deaf"} {
		r, cmd := child(t, kind)
		r.begin(withWorkload("acquire-release", `{"hold": 60000000000}`, 3))
		r.await(3, history.Acquire, history.Invoke)
		began := time.Now()
		if err := r.stdin.Close(); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-r.result:
			if cmd.ProcessState.ExitCode() != 3 {
				t.Errorf("%s: ended with %v", kind, err)
			}
		case <-time.After(patience):
			_ = cmd.Process.Kill()
			t.Fatalf("%s: the client lives on", kind)
		}
		if took := time.Since(began); took > promised+room {
			t.Errorf("%s: the client ended after %v", kind, took)
		}
	}
}

// The same within one process, in which nothing may be left behind (TestMain checks).
func TestEndOfInputInside(t *testing.T) {
	r := inside(t, newToy())
	r.begin(withWorkload("acquire-release", `{"hold": 60000000000}`, 3))
	r.await(3, history.Acquire, history.Invoke)
	if err := r.stdin.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-r.result; !errors.Is(err, wire.ErrSupervisorGone) {
		t.Errorf("got %v", err)
	}
	r = inside(t, newToy())
	r.frame(wire.TypeHello)
	if err := r.stdin.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-r.result; !errors.Is(err, wire.ErrSupervisorGone) {
		t.Errorf("before the start: got %v", err)
	}
}

// A supervisor that no longer reads tells its client to stop: the goodbye cannot be sent.
func TestUnreadGoodbye(t *testing.T) {
	r := inside(t, newToy())
	r.begin(nil)
	if err := r.stdout.Close(); err != nil {
		t.Fatal(err)
	}
	r.send(wire.Frame{Type: wire.TypeStop})
	if err := <-r.result; !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("got %v", err)
	}
}

// A client that is stopped for a while knows it afterwards.
func TestStallIsNoticed(t *testing.T) {
	const stall = 300 * time.Millisecond
	r, cmd := child(t, "plain")
	r.begin(nil)
	if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	var status syscall.WaitStatus
	for !status.Stopped() { // a busy machine delivers the signal late
		if _, err := syscall.Wait4(cmd.Process.Pid, &status, syscall.WUNTRACED, nil); err != nil && !errors.Is(err, syscall.EINTR) {
			t.Fatal(err)
		}
	}
	time.Sleep(stall)
	if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	d := r.stop()
	stalls := find(r.events, history.Stall, history.Info)
	slices.SortFunc(stalls, func(a, b history.Event) int { return cmp.Compare(b.Value, a.Value) }) // on a loud machine it is not the only one
	if len(stalls) == 0 || stalls[0].Value < int64(stall) || stalls[0].User.Client() != 1 || d.Stall < stalls[0].Value {
		t.Errorf("stalls are %+v, the longest is said to be %v", stalls, time.Duration(d.Stall))
	}
	if d.CPU <= 0 {
		t.Errorf("processor time is %d", d.CPU)
	}
}

// A client whose supervisor is stopped runs on until the stream is full, which is at once here. Then its users wait,
// some of them within the hold. The history records for how long: stalls cover the time in which nothing happened.
func TestUsersOfAFullStreamStandStill(t *testing.T) {
	r := inside(t, newToy())
	r.begin(withWorkload("acquire-release", `{}`, 4))
	r.await(1, history.Acquire, history.Ok)
	r.still.Lock()
	stopped := clock.Now()
	time.Sleep(300 * time.Millisecond)
	stopped = clock.Now() - stopped
	r.still.Unlock()
	r.stop()
	stalls := find(r.events, history.Stall, history.Info)
	others := slices.DeleteFunc(slices.Clone(r.events), func(e history.Event) bool { return e.Kind == history.Stall })
	var longest, told int64
	for i := range others[1:] {
		from, until := others[i].Time, others[i+1].Time
		if until-from <= longest {
			continue
		}
		longest, told = until-from, 0
		for _, s := range stalls {
			told += max(0, min(s.Time, until)-max(s.Time-s.Value, from))
		}
	}
	const untold = int64(50 * time.Millisecond) // two stalls of less than 20 ms are not recorded, one before the longest and one after; the rest is room
	if longest < stopped/2 || told < longest-untold {
		t.Errorf("of %v without a reader nothing happened for %v, of which the stalls tell %v",
			time.Duration(stopped), time.Duration(longest), time.Duration(told))
	}
}

func TestErrorsAreCounted(t *testing.T) {
	var a tally
	for i := range 30 {
		a.add(errors.New(string(rune('a' + i))))
	}
	a.add(errors.New("a"))
	a.add(nil)
	got := a.texts()
	sum := int64(0)
	for _, n := range got {
		sum += n
	}
	if len(got) != maxTexts || got["a"] != 2 || sum != 31 {
		b, _ := json.Marshal(got)
		t.Errorf("%d texts: %s", len(got), b)
	}
	var c tally
	for _, port := range []string{"40001", "40002"} {
		c.add(errors.New("read tcp 10.0.0.2:" + port + "->10.0.0.3:6379: reset"))
	}
	if c.texts()["read tcp 10.0.0.3:6379: reset"] != 2 {
		t.Errorf("got %v", c.texts())
	}
}
