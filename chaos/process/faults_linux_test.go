package process

import (
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/chaos/faulttest"
	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/clock"
)

func newFault(t *testing.T, name, params string) chaos.Fault {
	t.Helper()
	return faulttest.New(t, Kinds(), name, params)
}

func TestPauseStopsEveryThreadAndHeals(t *testing.T) {
	a, b := newProcess(t, "a"), newProcess(t, "b")
	from := clock.Now()
	heal, r, err := newFault(t, "pause", "").Inject(t.Context(), chaos.Scope{On: []chaos.Node{a, b}})
	if err != nil {
		t.Fatal(err)
	}
	faulttest.WantStatus(t, "pause", r, history.Installed)
	if r.Time < from || r.Time > clock.Now() {
		t.Errorf("seen at %d, not between %d and now", r.Time, from)
	}
	if !mute(t, a) || !mute(t, b) {
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
	faulttest.WantStatus(t, "heal", r, history.Installed)
	if !answers(t, a) || !answers(t, b) {
		t.Error("a healed process does not answer")
	}
}

func TestPauseThatDidNotBite(t *testing.T) {
	a, b := newProcess(t, "a"), newProcess(t, "b")
	heal, r, err := newFault(t, "pause", "").Inject(t.Context(), chaos.Scope{On: []chaos.Node{a, deafToPause{b}}})
	if err != nil {
		t.Fatal(err)
	}
	faulttest.WantStatus(t, "pause of one of two", r, history.NotInstalled)
	if _, err := heal(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !answers(t, a) {
		t.Error("the half that was done was not undone")
	}
}

func TestPauseThatWasNotHealed(t *testing.T) {
	a := newProcess(t, "a")
	heal := faulttest.Injected(t, "pause", newFault(t, "pause", ""), chaos.Scope{On: []chaos.Node{deafToResume{a}}})
	r, err := heal(t.Context())
	if err == nil {
		t.Error("no error from a heal that healed nothing")
	}
	faulttest.WantStatus(t, "heal", r, history.NotInstalled)
}

func TestPauseOfAProcessThatDies(t *testing.T) {
	a := newProcess(t, "a")
	heal, _, err := newFault(t, "pause", "").Inject(t.Context(), chaos.Scope{On: []chaos.Node{a}})
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
	faulttest.WantStatus(t, "heal", r, history.Installed)
}

// counting is a process that counts its pauses, as the nodes of a run do.
type counting struct {
	*realProcess
	n     int
	other func() // called right after the look that follows a resume
	next  func()
}

func (c *counting) Pauses() int { return c.n }

func (c *counting) Pause(ctx context.Context) (chaos.ProcessState, error) {
	c.n++
	return c.realProcess.Pause(ctx)
}

func (c *counting) Resume(ctx context.Context) (chaos.ProcessState, error) {
	if c.n--; c.n > 0 {
		c.next, c.other = c.other, nil
		return c.realProcess.Inspect(ctx)
	}
	return c.realProcess.Resume(ctx)
}

func (c *counting) Inspect(ctx context.Context) (chaos.ProcessState, error) {
	s, err := c.realProcess.Inspect(ctx)
	if do := c.next; do != nil {
		c.next = nil
		do()
	}
	return s, err
}

func TestOverlappingPausesHealIndependently(t *testing.T) {
	a := &counting{realProcess: newProcess(t, "a")}
	var heals []chaos.Heal
	for range 2 {
		heal := faulttest.Injected(t, "pause", newFault(t, "pause", ""), chaos.Scope{On: []chaos.Node{a}})
		heals = append(heals, heal)
	}
	healIndependently(t, a.realProcess, heals, "1 other pauses")
}

// The look finds the process stopped, and the heal of the other pause comes before its receipt is written.
func TestAnotherPauseIsHealedAtOnce(t *testing.T) {
	a := &counting{realProcess: newProcess(t, "a")}
	var heals []chaos.Heal
	for range 2 {
		heals = append(heals, faulttest.Injected(t, "pause", newFault(t, "pause", ""), chaos.Scope{On: []chaos.Node{a}}))
	}
	a.other = func() {
		if _, err := heals[1](t.Context()); err != nil {
			t.Error(err)
		}
	}
	r, err := heals[0](t.Context())
	if err != nil || a.n != 0 {
		t.Fatalf("%v; %d pauses stand", err, a.n)
	}
	faulttest.WantStatus(t, "heal", r, history.Installed)
}

// healIndependently heals two injections: the process stands still until the second is healed, and the receipt of the
// first names the other.
func healIndependently(t *testing.T, p *realProcess, heals []chaos.Heal, other string) {
	t.Helper()
	for i, still := range []bool{true, false} {
		r, err := heals[i](t.Context())
		if err != nil {
			t.Fatal(err)
		}
		faulttest.WantStatus(t, "heal", r, history.Installed)
		if still && !mute(t, p) || !still && !answers(t, p) || strings.Contains(r.Evidence, other) != still {
			t.Errorf("after heal %d: %s", i+1, r.Evidence)
		}
	}
}

func TestThePauseOfADeadProcessDoesNotContinueItsSuccessor(t *testing.T) {
	a := &counting{realProcess: newProcess(t, "a")}
	old, r, err := newFault(t, "pause", "").Inject(t.Context(), chaos.Scope{On: []chaos.Node{a}})
	if err != nil {
		t.Fatal(err)
	}
	faulttest.WantStatus(t, "pause", r, history.Installed)
	if _, err := a.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-a.exited
	if _, r, _ := newFault(t, "pause", "").Inject(t.Context(), chaos.Scope{On: []chaos.Node{a}}); r.Status != history.NotInstalled {
		t.Errorf("the pause of a dead process: %+v", r)
	}
	a.n = 0
	if err := a.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	answers(t, a.realProcess)
	if _, _, err := newFault(t, "pause", "").Inject(t.Context(), chaos.Scope{On: []chaos.Node{a}}); err != nil {
		t.Fatal(err)
	}
	if r, err = old(t.Context()); err != nil {
		t.Fatal(err)
	}
	faulttest.WantStatus(t, "the heal of the old pause", r, history.Installed)
	if !mute(t, a.realProcess) {
		t.Error("it continued another process than it had stopped")
	}
}

func TestPauseGivenUpHalfWayIsUndone(t *testing.T) {
	a := newProcess(t, "a")
	heal, r, err := newFault(t, "pause", "").Inject(t.Context(), chaos.Scope{On: []chaos.Node{gaveUp{a}}})
	if err == nil {
		t.Error("no error")
	}
	faulttest.WantStatus(t, "pause", r, history.NotInstalled)
	if !mute(t, a) {
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
	heal := faulttest.Injected(t, "kill", newFault(t, "kill", ""), chaos.Scope{On: []chaos.Node{a}, Service: a})
	if _, err := os.Stat("/proc/" + strconv.Itoa(old) + "/exe"); err == nil {
		if s, _ := a.Inspect(t.Context()); !s.Gone() {
			t.Error("the process is still there")
		}
	}
	r, err := heal(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	faulttest.WantStatus(t, "heal", r, history.Installed)
	if a.cmd.Process.Pid == old || !answers(t, a) {
		t.Error("it was not started again")
	}
}

// tardy is a process that is reaped long after it was seen gone.
type tardy struct {
	*realProcess
	seen chaos.ProcessState
}

func (p *tardy) Kill(ctx context.Context) (chaos.ProcessState, error) {
	sent := clock.Now()
	var err error
	p.seen, err = p.realProcess.Kill(ctx)
	p.seen.Sent = sent
	return p.seen, err
}

// TestAKillIsDatedByWhenItWasSeen: a kill is dated by when the process was first seen gone, not by later looks.
func TestAKillIsDatedByWhenItWasSeen(t *testing.T) {
	for _, fault := range []string{"kill", "restart"} {
		a := &tardy{realProcess: newProcess(t, "a")}
		_, r, err := newFault(t, fault, "").Inject(t.Context(), chaos.Scope{On: []chaos.Node{a}, Service: a})
		if err != nil || r.Time != a.seen.Time || r.Sent != a.seen.Sent {
			t.Errorf("%s: %+v, %v; seen %+v", fault, r, err, a.seen)
		}
	}
}

func TestKillLeavesAClientDead(t *testing.T) {
	a := newProcess(t, "client-1")
	a.once = true
	heal := faulttest.Injected(t, "kill", newFault(t, "kill", ""), chaos.Scope{On: []chaos.Node{a}, Service: a})
	r, err := heal(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	faulttest.WantStatus(t, "heal", r, history.Installed)
	<-a.exited
	if a.Running() || !strings.Contains(r.Evidence, "stays dead") {
		t.Errorf("running %t, evidence %q", a.Running(), r.Evidence)
	}
}

func TestKillThatDidNotBite(t *testing.T) {
	a := newProcess(t, "a")
	_, r, err := newFault(t, "kill", "").Inject(t.Context(), chaos.Scope{On: []chaos.Node{deafToKill{a}}, Service: a})
	if err != nil {
		t.Fatal(err)
	}
	faulttest.WantStatus(t, "kill", r, history.NotInstalled)
}

func TestKillOfTheDeadDoesNotBite(t *testing.T) {
	a := newProcess(t, "a")
	if _, err := a.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-a.exited
	heal, r, err := newFault(t, "kill", "").Inject(t.Context(), chaos.Scope{On: []chaos.Node{a}, Service: a})
	if err != nil {
		t.Fatal(err)
	}
	faulttest.WantStatus(t, "kill", r, history.NotInstalled)
	if _, err := heal(t.Context()); err != nil || a.Running() {
		t.Errorf("heal: %v, running %t", err, a.Running())
	}
}

func TestKillWithFailedHeal(t *testing.T) {
	a := newProcess(t, "a")
	heal := faulttest.Injected(t, "kill", newFault(t, "kill", ""), chaos.Scope{On: []chaos.Node{neverBack{a}}, Service: a})
	r, err := heal(t.Context())
	if err == nil || !strings.Contains(err.Error(), "no such binary") {
		t.Errorf("heal: %v", err)
	}
	faulttest.WantStatus(t, "heal", r, history.NotInstalled)
}

// quorum is a service whose members serve only when enough of them run.
type quorum struct {
	members []*realProcess
	need    int
}

func (q quorum) Facts() map[string]string {
	return map[string]string{chaos.FactServes: "", chaos.FactAnswers: ""}
}

func (q quorum) Ask(ctx context.Context, node, fact string) (string, error) {
	up, self := 0, ""
	for _, m := range q.members {
		if s, err := m.Inspect(ctx); err == nil && !s.Gone() { // a dead one may not be reaped yet
			up++
		}
		if m.name == node {
			self, _ = m.Ask(ctx, node, chaos.FactServes)
		}
	}
	if up < q.need && fact == chaos.FactServes {
		return "", errors.New("no quorum")
	}
	return self, nil
}

func TestMembersHealedOneAfterAnotherDoNotWaitForEachOther(t *testing.T) {
	t.Parallel()
	q := quorum{members: []*realProcess{newProcess(t, "a"), newProcess(t, "b"), newProcess(t, "c")}, need: 2}
	s := chaos.NewStack()
	for i, m := range q.members {
		heal := faulttest.Injected(t, "kill", newFault(t, "kill", ""), chaos.Scope{On: []chaos.Node{m}, Service: q, Run: &faulttest.Run{Beside: func() int { return s.Others(i) }}})
		s.Push(i, heal, chaos.Timeout)
	}
	for i, h := range s.HealAll(t.Context()) {
		if h.Err != nil {
			t.Errorf("heal %d: %v", i+1, h.Err)
		}
		faulttest.WantStatus(t, "heal", h.Receipt, history.Installed)
		if waits := strings.Contains(h.Receipt.Evidence, "does not serve yet"); waits != (i == 0) {
			t.Errorf("heal %d: %s", i+1, h.Receipt.Evidence)
		}
	}
}

func TestRestart(t *testing.T) {
	a := newProcess(t, "a")
	old, from := a.cmd.Process.Pid, clock.Now()
	heal := faulttest.Injected(t, "restart", newFault(t, "restart", "delay: 150ms"), chaos.Scope{On: []chaos.Node{a}, Service: a})
	if took := time.Duration(clock.Now() - from); took < 150*time.Millisecond {
		t.Errorf("back after %s, before the delay", took)
	}
	if a.cmd.Process.Pid == old || !answers(t, a) {
		t.Error("it was not started again")
	}
	young := a.cmd.Process.Pid
	r, err := heal(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	faulttest.WantStatus(t, "heal", r, history.Installed)
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
	punctual, a := newProcess(t, "b"), &late{realProcess: newProcess(t, "a"), delay: time.Hour}
	if got, want := chaos.Limit([]chaos.Node{punctual, a}), chaos.Timeout+time.Hour; got != want {
		t.Errorf("an injection has %s, want %s", got, want)
	}
	heal := faulttest.Injected(t, "kill", newFault(t, "kill", ""), chaos.Scope{On: []chaos.Node{a}, Service: a})
	r, err := heal(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	faulttest.WantStatus(t, "heal", r, history.Installed)
	if a.left < time.Hour {
		t.Errorf("its start was given %s, which is less than its delay", a.left)
	}
	if !strings.Contains(r.Evidence, "delayed by 1h0m0s") {
		t.Errorf("evidence %q does not name the delay", r.Evidence)
	}
}

func TestRestartThatDoesNotComeBack(t *testing.T) {
	a := newProcess(t, "a")
	_, r, err := newFault(t, "restart", "").Inject(t.Context(), chaos.Scope{On: []chaos.Node{neverBack{a}}, Service: a})
	if err == nil {
		t.Error("no error")
	}
	faulttest.WantStatus(t, "restart", r, history.NotInstalled)
}

func TestRestartInterruptedIsUndone(t *testing.T) {
	a := newProcess(t, "a")
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	heal, r, err := restart{Delay: time.Minute}.Inject(ctx, chaos.Scope{On: []chaos.Node{a}, Service: a})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
	faulttest.WantStatus(t, "restart", r, history.NotInstalled)
	if _, err := heal(t.Context()); err != nil || !answers(t, a) {
		t.Errorf("heal: %v; it must be back", err)
	}
}

func TestRestartRefusesAClientBeforeItDoesAnything(t *testing.T) {
	a, c := newProcess(t, "a"), newProcess(t, "client-1")
	c.once = true
	_, r, err := newFault(t, "restart", "").Inject(t.Context(), chaos.Scope{On: []chaos.Node{a, c}, Service: a})
	var u chaos.Unavailable
	if !errors.As(err, &u) || !strings.Contains(u.Reason, "client-1") {
		t.Errorf("error %v", err)
	}
	faulttest.WantStatus(t, "restart", r, history.NotInstalled)
	if !answers(t, a) || !answers(t, c) {
		t.Error("something was done all the same")
	}
}

func TestFaultsRefuseNodesWithoutTheCapability(t *testing.T) {
	for _, name := range []string{"pause", "kill", "restart"} {
		heal, r, err := newFault(t, name, "").Inject(t.Context(), chaos.Scope{On: []chaos.Node{faulttest.Node("x")}})
		var u chaos.Unavailable
		if !errors.As(err, &u) || heal == nil {
			t.Errorf("%s: error %v, heal nil: %t", name, err, heal == nil)
		}
		faulttest.WantStatus(t, name, r, history.NotInstalled)
	}
}
