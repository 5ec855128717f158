package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/clock"
)

func newFault(t *testing.T, name, params string) Fault {
	t.Helper()
	k, ok := Lookup(name)
	if !ok {
		t.Fatalf("no fault %s", name)
	}
	f, err := k.New(func(into any) error {
		if params == "" {
			return nil
		}
		return json.Unmarshal([]byte(params), into)
	})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestPauseStopsEveryThreadAndHeals(t *testing.T) {
	a, b := newProcess(t, "a"), newProcess(t, "b")
	from := clock.Now()
	heal, r, err := newFault(t, "pause", "").Inject(t.Context(), Scope{On: []Node{a, b}})
	if err != nil {
		t.Fatal(err)
	}
	wantStatus(t, "pause", r, history.Installed)
	if r.Time < from || r.Time > clock.Now() {
		t.Errorf("seen at %d, not between %d and now", r.Time, from)
	}
	if answers(t, a) || answers(t, b) {
		t.Error("a paused process answers")
	}
	s, err := a.Inspect(t.Context())
	if err != nil || !s.Stopped() || s.Threads["T"] < 2 {
		t.Errorf("state %v (%v), want several threads, all of them T", s, err)
	}
	r, err = heal(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	wantStatus(t, "heal", r, history.Installed)
	if !answers(t, a) || !answers(t, b) {
		t.Error("a healed process does not answer")
	}
}

func TestPauseThatDidNotBite(t *testing.T) {
	a, b := newProcess(t, "a"), newProcess(t, "b")
	heal, r, err := newFault(t, "pause", "").Inject(t.Context(), Scope{On: []Node{a, deafToPause{b}}})
	if err != nil {
		t.Fatal(err)
	}
	wantStatus(t, "pause of one of two", r, history.NotInstalled)
	if _, err := heal(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !answers(t, a) {
		t.Error("the half that was done was not undone")
	}
}

func TestPauseThatWasNotHealed(t *testing.T) {
	a := newProcess(t, "a")
	heal, r, err := newFault(t, "pause", "").Inject(t.Context(), Scope{On: []Node{deafToResume{a}}})
	if err != nil {
		t.Fatal(err)
	}
	wantStatus(t, "pause", r, history.Installed)
	r, err = heal(t.Context())
	if err == nil {
		t.Error("no error from a heal that healed nothing")
	}
	wantStatus(t, "heal", r, history.NotInstalled)
}

func TestPauseOfAProcessThatDies(t *testing.T) {
	a := newProcess(t, "a")
	heal, _, err := newFault(t, "pause", "").Inject(t.Context(), Scope{On: []Node{a}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-a.exited
	r, err := heal(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	wantStatus(t, "heal", r, history.Installed)
}

// counting is a process that counts its pauses, as the nodes of a run do.
type counting struct {
	*process
	n int
}

func (c *counting) Pauses() int { return c.n }

func (c *counting) Pause(ctx context.Context) (ProcessState, error) {
	c.n++
	return c.process.Pause(ctx)
}

func (c *counting) Resume(ctx context.Context) (ProcessState, error) {
	if c.n--; c.n > 0 {
		return c.Inspect(ctx)
	}
	return c.process.Resume(ctx)
}

func TestOverlappingPausesHealIndependently(t *testing.T) {
	a := &counting{process: newProcess(t, "a")}
	var heals []Heal
	for range 2 {
		heal, r, err := newFault(t, "pause", "").Inject(t.Context(), Scope{On: []Node{a}})
		if err != nil {
			t.Fatal(err)
		}
		wantStatus(t, "pause", r, history.Installed)
		heals = append(heals, heal)
	}
	for i, stillStopped := range []bool{true, false} {
		r, err := heals[i](t.Context())
		if err != nil {
			t.Fatal(err)
		}
		wantStatus(t, "heal", r, history.Installed)
		if answers(t, a.process) == stillStopped || strings.Contains(r.Evidence, "1 other pauses") != stillStopped {
			t.Errorf("after heal %d: %s", i+1, r.Evidence)
		}
	}
}

func TestThePauseOfADeadProcessDoesNotContinueItsSuccessor(t *testing.T) {
	a := &counting{process: newProcess(t, "a")}
	old, r, err := newFault(t, "pause", "").Inject(t.Context(), Scope{On: []Node{a}})
	if err != nil {
		t.Fatal(err)
	}
	wantStatus(t, "pause", r, history.Installed)
	if _, err := a.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-a.exited
	if _, r, _ := newFault(t, "pause", "").Inject(t.Context(), Scope{On: []Node{a}}); r.Status != history.NotInstalled {
		t.Errorf("the pause of a dead process: %+v", r)
	}
	a.n = 0
	if err := a.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := serves(t.Context(), a, "a"); err != nil {
		t.Fatal(err)
	}
	if _, _, err := newFault(t, "pause", "").Inject(t.Context(), Scope{On: []Node{a}}); err != nil {
		t.Fatal(err)
	}
	if r, err = old(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantStatus(t, "the heal of the old pause", r, history.Installed)
	if answers(t, a.process) {
		t.Error("it continued another process than it had stopped")
	}
}

func TestPauseGivenUpHalfWayIsUndone(t *testing.T) {
	a := newProcess(t, "a")
	heal, r, err := newFault(t, "pause", "").Inject(t.Context(), Scope{On: []Node{gaveUp{a}}})
	if err == nil {
		t.Error("no error")
	}
	wantStatus(t, "pause", r, history.NotInstalled)
	if answers(t, a) {
		t.Fatal("the half that this test is about was not done")
	}
	if _, err := heal(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !answers(t, a) {
		t.Error("it is still stopped")
	}
}

func TestKillAndHeal(t *testing.T) {
	a := newProcess(t, "a")
	old := a.cmd.Process.Pid
	heal, r, err := newFault(t, "kill", "").Inject(t.Context(), Scope{On: []Node{a}, Service: a})
	if err != nil {
		t.Fatal(err)
	}
	wantStatus(t, "kill", r, history.Installed)
	if _, err := os.Stat("/proc/" + strconv.Itoa(old) + "/exe"); err == nil {
		if s, _ := a.Inspect(t.Context()); !s.Gone() {
			t.Error("the process is still there")
		}
	}
	r, err = heal(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	wantStatus(t, "heal", r, history.Installed)
	if a.cmd.Process.Pid == old || !answers(t, a) {
		t.Error("it was not started again")
	}
}

func TestKillLeavesAClientDead(t *testing.T) {
	a := newProcess(t, "client-1")
	a.once = true
	heal, r, err := newFault(t, "kill", "").Inject(t.Context(), Scope{On: []Node{a}, Service: a})
	if err != nil {
		t.Fatal(err)
	}
	wantStatus(t, "kill", r, history.Installed)
	r, err = heal(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	wantStatus(t, "heal", r, history.Installed)
	<-a.exited
	if a.Running() || !strings.Contains(r.Evidence, "stays dead") {
		t.Errorf("running %t, evidence %q", a.Running(), r.Evidence)
	}
}

func TestKillThatDidNotBite(t *testing.T) {
	a := newProcess(t, "a")
	_, r, err := newFault(t, "kill", "").Inject(t.Context(), Scope{On: []Node{deafToKill{a}}, Service: a})
	if err != nil {
		t.Fatal(err)
	}
	wantStatus(t, "kill", r, history.NotInstalled)
}

func TestKillOfTheDeadDoesNotBiteAndRevivesNobody(t *testing.T) {
	a := newProcess(t, "a")
	if _, err := a.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-a.exited
	heal, r, err := newFault(t, "kill", "").Inject(t.Context(), Scope{On: []Node{a}, Service: a})
	if err != nil {
		t.Fatal(err)
	}
	wantStatus(t, "kill", r, history.NotInstalled)
	if _, err := heal(t.Context()); err != nil || a.Running() {
		t.Errorf("heal: %v, running %t", err, a.Running())
	}
}

func TestKillWhoseHealFails(t *testing.T) {
	a := newProcess(t, "a")
	heal, r, err := newFault(t, "kill", "").Inject(t.Context(), Scope{On: []Node{neverBack{a}}, Service: a})
	if err != nil {
		t.Fatal(err)
	}
	wantStatus(t, "kill", r, history.Installed)
	r, err = heal(t.Context())
	if err == nil || !strings.Contains(err.Error(), "no such binary") {
		t.Errorf("heal: %v", err)
	}
	wantStatus(t, "heal", r, history.NotInstalled)
}

// quorum is a service whose members serve only when enough of them run.
type quorum struct {
	members []*process
	need    int
}

func (q quorum) Facts() map[string]string { return map[string]string{FactServes: "", FactAnswers: ""} }

func (q quorum) Ask(ctx context.Context, node, fact string) (string, error) {
	up, self := 0, ""
	for _, m := range q.members {
		if s, err := m.Inspect(ctx); err == nil && !s.Gone() { // a dead one may not be reaped yet
			up++
		}
		if m.name == node {
			self, _ = m.Ask(ctx, node, FactServes)
		}
	}
	if up < q.need && fact == FactServes {
		return "", errors.New("no quorum")
	}
	return self, nil
}

func TestMembersHealedOneAfterAnotherDoNotWaitForEachOther(t *testing.T) {
	t.Parallel()
	q := quorum{members: []*process{newProcess(t, "a"), newProcess(t, "b"), newProcess(t, "c")}, need: 2}
	s := NewStack()
	for i, m := range q.members {
		heal, r, err := newFault(t, "kill", "").Inject(t.Context(), Scope{On: []Node{m}, Service: q, Others: func() int { return s.Others(i) }})
		if err != nil {
			t.Fatal(err)
		}
		wantStatus(t, "kill", r, history.Installed)
		s.Push(i, heal, Timeout)
	}
	for i, h := range s.HealAll(t.Context()) {
		if h.Err != nil {
			t.Errorf("heal %d: %v", i+1, h.Err)
		}
		wantStatus(t, "heal", h.Receipt, history.Installed)
		if waits := strings.Contains(h.Receipt.Evidence, "does not serve yet"); waits != (i == 0) {
			t.Errorf("heal %d: %s", i+1, h.Receipt.Evidence)
		}
	}
}

func TestRestart(t *testing.T) {
	a := newProcess(t, "a")
	old, from := a.cmd.Process.Pid, clock.Now()
	heal, r, err := newFault(t, "restart", `{"delay_ns": 150000000}`).Inject(t.Context(), Scope{On: []Node{a}, Service: a})
	if err != nil {
		t.Fatal(err)
	}
	wantStatus(t, "restart", r, history.Installed)
	if took := time.Duration(clock.Now() - from); took < 150*time.Millisecond {
		t.Errorf("back after %s, before the delay", took)
	}
	if a.cmd.Process.Pid == old || !answers(t, a) {
		t.Error("it was not started again")
	}
	young := a.cmd.Process.Pid
	r, err = heal(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	wantStatus(t, "heal", r, history.Installed)
	if a.cmd.Process.Pid != young {
		t.Error("the heal of a restart that came back started it once more")
	}
	if !strings.Contains(r.Evidence, "was running already") || strings.Contains(r.Evidence, "start was asked for") {
		t.Errorf("the heal that started nothing says %q", r.Evidence)
	}
}

func TestRestartRefusesADelayThatDoesNotFit(t *testing.T) {
	for delay, fits := range map[time.Duration]bool{-1: false, 0: true, maxDelay: true, maxDelay + 1: false} {
		_, err := restartKind().New(func(into any) error { into.(*restart).Delay = delay; return nil })
		if (err == nil) != fits {
			t.Errorf("a delay of %s: %v", delay, err)
		}
	}
}

func TestANodeThatStartsLateIsGivenTheTime(t *testing.T) {
	punctual, a := newProcess(t, "b"), &late{process: newProcess(t, "a"), delay: time.Hour}
	if got, want := Limit([]Node{punctual, a}), Timeout+time.Hour; got != want {
		t.Errorf("an injection has %s, want %s", got, want)
	}
	heal, r, err := newFault(t, "kill", "").Inject(t.Context(), Scope{On: []Node{a}, Service: a})
	if err != nil {
		t.Fatal(err)
	}
	wantStatus(t, "kill", r, history.Installed)
	r, err = heal(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	wantStatus(t, "heal", r, history.Installed)
	if a.left < time.Hour {
		t.Errorf("its start was given %s, which is less than its delay", a.left)
	}
	if !strings.Contains(r.Evidence, "put off by 1h0m0s") {
		t.Errorf("evidence %q does not name the delay", r.Evidence)
	}
}

func TestRestartThatDoesNotComeBack(t *testing.T) {
	a := newProcess(t, "a")
	_, r, err := newFault(t, "restart", "").Inject(t.Context(), Scope{On: []Node{neverBack{a}}, Service: a})
	if err == nil {
		t.Error("no error")
	}
	wantStatus(t, "restart", r, history.NotInstalled)
}

func TestRestartInterruptedIsUndone(t *testing.T) {
	a := newProcess(t, "a")
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	heal, r, err := restart{Delay: time.Minute}.Inject(ctx, Scope{On: []Node{a}, Service: a})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
	wantStatus(t, "restart", r, history.NotInstalled)
	if _, err := heal(t.Context()); err != nil || !answers(t, a) {
		t.Errorf("heal: %v; it must be back", err)
	}
}

func TestRestartRefusesAClientBeforeItDoesAnything(t *testing.T) {
	a, c := newProcess(t, "a"), newProcess(t, "client-1")
	c.once = true
	_, r, err := newFault(t, "restart", "").Inject(t.Context(), Scope{On: []Node{a, c}, Service: a})
	var u Unavailable
	if !errors.As(err, &u) || !strings.Contains(u.Reason, "client-1") {
		t.Errorf("error %v", err)
	}
	wantStatus(t, "restart", r, history.NotInstalled)
	if !answers(t, a) || !answers(t, c) {
		t.Error("something was done all the same")
	}
}

func TestFaultsRefuseNodesWithoutTheCapability(t *testing.T) {
	for _, name := range []string{"pause", "kill", "restart"} {
		heal, r, err := newFault(t, name, "").Inject(t.Context(), Scope{On: []Node{bareNode("x")}})
		var u Unavailable
		if !errors.As(err, &u) || heal == nil {
			t.Errorf("%s: error %v, heal nil: %t", name, err, heal == nil)
		}
		wantStatus(t, name, r, history.NotInstalled)
	}
	heal, r, err := newFault(t, "noop", "").Inject(t.Context(), Scope{On: []Node{bareNode("x")}})
	if err != nil {
		t.Fatal(err)
	}
	wantStatus(t, "noop", r, history.Installed)
	r, err = heal(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	wantStatus(t, "noop's heal", r, history.Installed)
}
