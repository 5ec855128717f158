package report

import (
	"strings"
	"testing"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/lock"
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/results/report/scene"
	"github.com/lockquake/lockquake/results/report/story"
)

// told returns the words of a synthetic story of A and B, whose first holds are given, and the picture's marks.
func told(t *testing.T, w *world, holds ...*grant) (words string, s *story.Story) {
	t.Helper()
	w.env.People = map[string]string{"A": "client-1", "B": "client-2"}
	dir := w.write(holds...)
	s = toldOf(t, synthetic{dir, baseReport(w, dir)})
	return strings.Join(s.Explain(), "\n") + "\n", s
}

// answered adds an operation of A, asked at 10 ms and answered at to ms. It uses an earlier grant if it needs one,
// and has a reason if one is given.
func (w *world) answered(k history.Kind, to float64, phase history.Phase, code uint8, r history.Event) {
	var held uint32
	if k != history.Acquire {
		held = w.acquire(0, 5, 6, 1, 10_000).op
	}
	op := w.event(history.Event{Time: at(10), Kind: k, Phase: history.Invoke, Grant: held})
	w.event(history.Event{Time: at(to), Kind: k, Phase: phase, Code: code, Op: op, Grant: held})
	if r.Code != 0 {
		r.Kind, r.Phase, r.Time, r.Op = history.Reason, history.Info, at(to), op
		w.event(r)
	}
}

// TestReasonOfARefusalIsShown by the recorded reason, else by what the receipts of faults prove, else by the
// error's class.
func TestReasonOfARefusalIsShown(t *testing.T) {
	t.Parallel()
	five := []string{"redlock-1", "redlock-2", "redlock-3", "redlock-4", "redlock-5"}
	dead := history.Fault{
		Name: "kill", Targets: five[2:], Start: at(1), Bit: at(2), Traits: &history.Traits{Kills: true, Began: "killed (SIGKILL)"}, Receipt: history.Receipt{Status: history.Installed},
	}
	split := history.Fault{
		Name: "partition", Targets: []string{"etcd-3", "client-1"}, Peers: []string{"etcd-1", "etcd-2", "client-2"}, Start: at(1), Bit: at(2),
		Traits: &history.Traits{Cuts: true, Began: "cut off from {peers}"}, Receipt: history.Receipt{Status: history.Installed},
	}
	etcd := &results.Majority{Servers: []string{"etcd-1", "etcd-2", "etcd-3"}}
	votes := func(v lock.Vote) history.Event {
		return history.Event{Code: history.CauseNoMajority, Token: v.Seen(), Value: 5}
	}
	for name, c := range map[string]struct {
		phase    history.Phase
		code     uint8
		reason   history.Event
		fault    history.Fault
		majority *results.Majority
		want     string
	}{
		"held": {phase: history.Fail, code: history.CodeContended, want: "it is held"},
		"held until its deadline": {
			phase: history.Info, code: history.CodeTimeout, reason: history.Event{Code: history.CauseWaitOver, Value: 5000 * ms},
			want: "the lock was held at each attempt, until its deadline after 5 s; its last request has no answer",
		},
		"held until it gave up": {
			phase: history.Fail, code: history.CodeContended, reason: history.Event{Code: history.CauseWaitOver, Value: 5000 * ms},
			want: "the lock is held; the wait was given up after 5 s",
		},
		"three of five dead": {
			phase: history.Fail, code: history.CodeContended, reason: votes(lock.Vote{No: 2, NotSent: 3}), fault: dead, majority: &results.Majority{Servers: five, Apart: true},
			want: "no majority: of 5 servers 2 said no and 3 could not be reached, where redlock-3, redlock-4 and redlock-5 are dead",
		},
		"a mixture": {
			phase: history.Info, code: history.CodeTimeout, reason: votes(lock.Vote{Yes: 2, Refused: 1, Silent: 2}),
			want: "no majority: of 5 servers 2 said yes, 1 answered with an error and 2 did not answer",
		},
		"no replica": {
			phase: history.Fail, code: history.CodeUnavailable, reason: history.Event{Code: history.CauseNotReplicated, Token: 1 << 32, Value: 500 * ms},
			want: "no replica acknowledged the key within 500 ms",
		},
		"too few replicas": {
			phase: history.Fail, code: history.CodeUnavailable, reason: history.Event{Code: history.CauseNotReplicated, Token: 2<<32 | 1, Value: 500 * ms},
			want: "only 1 of 2 replicas acknowledged the key within 500 ms",
		},
		"cut off with the leader": {
			phase: history.Fail, code: history.CodeConnection, fault: split, majority: etcd, want: "no majority: it reaches etcd-3 alone, of 3 servers",
		},
		"cut off, no answer": {phase: history.Info, code: history.CodeTimeout, fault: split, majority: etcd, want: "no majority: it reaches etcd-3 alone, of 3 servers"},
		"cut off, but held":  {phase: history.Fail, code: history.CodeContended, fault: split, majority: etcd, want: "it is held"},
		"no connection":      {phase: history.Fail, code: history.CodeConnection, majority: etcd, want: "no connection could be made"},
		"it breaks":          {phase: history.Info, code: history.CodeConnection, want: "the connection breaks; the outcome is unknown"},
		"unavailable":        {phase: history.Fail, code: history.CodeUnavailable, want: "the service reports that it cannot serve"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 2)
			if w.env.Majority = c.majority; c.fault.Name != "" {
				w.faults = append(w.faults, c.fault)
			}
			w.answered(history.Acquire, 400, c.phase, c.code, c.reason)
			words, _ := told(t, w, w.acquire(history.MakeUser(1, 0), 411, 412, 3, 10_000))
			if want := "A, which had asked for lock-0 at t+0.010 s, gets no grant: " + c.want + "\n"; !strings.Contains(words, want) {
				t.Errorf("no %q in\n%s", want, words)
			}
		})
	}
}

// TestAnAnswerStandsAtItsOwnTime, and not at that of its question.
func TestAnAnswerStandsAtItsOwnTime(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		kind  history.Kind
		after float64
		phase history.Phase
		code  uint8
		want  []string
	}{
		"late":      {history.Release, 2000, history.Fail, history.CodeNotHeld, []string{"t+0.010 s  A releases lock-0\n", "t+2.000 s  A, which released lock-0 at t+0.010 s, gets the answer: not held\n"}},
		"at once":   {history.Release, 11, history.Fail, history.CodeNotHeld, []string{"t+0.010 s  A releases lock-0: not held\n"}},
		"late yes":  {history.Release, 2000, history.Ok, 0, []string{"t+0.010 s  A releases lock-0\n"}},
		"checked":   {history.Check, 2000, history.Ok, 0, []string{"t+0.010 s  A checks whether it still has lock-0\n", "t+2.000 s  A, which had checked whether it still has lock-0 at t+0.010 s, gets the answer: yes\n"}},
		"extension": {history.Renew, 2000, history.Info, history.CodeTimeout, []string{"t+2.000 s  A, which had asked to renew lock-0 at t+0.010 s, gets the answer: no answer\n"}},
	} {
		w := newWorld(t, 2)
		w.answered(c.kind, c.after, c.phase, c.code, history.Event{})
		words, _ := told(t, w, w.acquire(history.MakeUser(1, 0), 2011, 2012, 3, 10_000))
		for _, want := range c.want {
			if !strings.Contains(words, want) {
				t.Errorf("%s: no %q in\n%s", name, want, words)
			}
		}
	}
}

// TestAKillIsDatedByItsSignal: its consequences are below it, whenever its receipt was taken. A death that it
// explains is not shown again.
func TestAKillIsDatedByItsSignal(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	b := w.acquire(history.MakeUser(1, 0), 5, 6, 3, 10_000)
	w.event(history.Event{Time: at(101), User: history.MakeUser(1, 0), Kind: history.Lost, Phase: history.Info, Grant: b.op})
	a := w.acquire(0, 7, 8, 2, 10_000)
	w.event(history.Event{Time: at(99), Kind: history.Release, Phase: history.Invoke, Grant: a.op})
	w.engine = append(w.engine, history.Event{Time: at(1300), Kind: history.Dead, Phase: history.Info, Grant: a.op, Value: at(99)})
	w.faults = []history.Fault{{
		Name: "kill", Targets: []string{"client-1"}, Start: at(90), Bit: at(1200), Traits: &history.Traits{Kills: true, Began: "killed (SIGKILL)"},
		Receipt: history.Receipt{Status: history.Installed, Time: at(1200), Sent: at(100)},
	}}
	words, s := told(t, w, a, b)
	if got := marked(s, "killed (SIGKILL)"); got != at(100) {
		t.Errorf("killed at %d, want %d:\n%s", got, at(100), words)
	}
	if strings.Contains(words, "A is dead") || !strings.Contains(words, "A releases lock-0: its process dies before an answer") {
		t.Errorf("%s", words)
	}
}

// TestAServerIsUpWhenItWasSeenToServe, and not when all of its heal was done.
func TestAServerIsUpWhenItWasSeenToServe(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	w.faults = []history.Fault{{
		Name: "kill", Targets: []string{"etcd-1"}, Start: at(1), Bit: at(2), Undo: at(50), End: at(90), Traits: &history.Traits{Kills: true, Began: "killed (SIGKILL)", Ended: "up again"},
		Receipt: history.Receipt{Status: history.Installed}, Healed: &history.Receipt{Status: history.Installed, Time: at(60)},
	}}
	words, s := told(t, w, w.acquire(0, 5, 100, 1, 10_000))
	if got := marked(s, "up again") + marked(s, "etcd-1: up again"); got != at(60) {
		t.Errorf("up again at %d, want %d:\n%s", got, at(60), words)
	}
}

// TestASessionIsLastSeenBeforeItEnds: the mark says that the session was not observed later, not that its holder's
// time is over.
func TestASessionIsLastSeenBeforeItEnds(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	a := w.acquire(0, 5, 6, 0, 0)
	w.clients[0][1].Valid = history.ValidEndless
	w.engine = append(w.engine, history.Event{Time: at(450), Kind: history.Ended, Phase: history.Info, Grant: a.op, Valid: at(450)})
	w.event(history.Event{Time: at(905), Kind: history.Lost, Phase: history.Info, Grant: a.op})
	words, s := told(t, w, a)
	for _, want := range []string{
		"t+0.450 s  the session of A is seen alive for the last time; nothing shows that A is entitled from here on, and it is still inside\n",
		"t+0.905 s  A learns that it lost lock-0, 455 ms after its session was last seen\n",
	} {
		if !strings.Contains(words, want) {
			t.Errorf("no %q in\n%s", want, words)
		}
	}
	if marked(s, "session last seen alive") != at(450) || marked(s, "validity ends") != 0 {
		t.Errorf("%q", lines(s))
	}
}

// TestAKeyIsDrawnWhereItWasSeen, also at a server whose answer never arrived, and which is therefore not among those
// that granted it.
func TestAKeyIsDrawnWhereItWasSeen(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	a := w.acquire(0, 5, 6, 0, 10_000)
	w.event(history.Event{Time: at(6), Kind: history.Reason, Phase: history.Info, Op: a.op, Grant: a.op, Code: history.CauseAnsweredBy, Token: 0b011, Value: 3})
	w.env.People = map[string]string{"A": "client-1", "B": "client-2"}
	dir := w.write(a)
	sc, err := scene.New(dir, baseReport(w, dir), w.env)
	must(t, err)
	for _, node := range []string{"redlock-1", "redlock-2", "redlock-3"} {
		sc.Seen = append(sc.Seen, history.Observation{By: history.ByGrant, Node: node, Fact: history.FactHolder + "lock-0", Answer: "k", User: &a.user, Grant: a.ref.Grant, Asked: at(7), Answered: at(8)})
	}
	s := story.Tell(sc)
	m := s.Marks[0]
	if want := "A asks for lock-0 and is granted it by redlock-1 and redlock-2 (redlock-3 has the key, too, but no answer came)"; !strings.HasPrefix(m.Say, want) {
		t.Errorf("%q, want %q", m.Say, want)
	}
	if len(m.At) != 3 || s.Lanes[m.At[2]].Name != "redlock-3" {
		t.Errorf("drawn at %v of %+v", m.At, s.Lanes)
	}
}

// TestEndOfAnOutageHasItsReason, after its causes.
func TestEndOfAnOutageHasItsReason(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	a := w.acquire(0, 5, 6, 1, 10_000)
	w.release(a, 90, history.Ok, 0)
	b := w.acquire(history.MakeUser(1, 0), 20, 1100, 2, 10_000)
	w.faults = []history.Fault{{Name: "kill", Targets: []string{"client-3"}, Start: at(100), Bit: at(101), Traits: &history.Traits{Kills: true}, Receipt: history.Receipt{Status: history.Installed}}}
	dir := w.write(a, b)
	r := baseReport(w, dir)
	r.Findings = []results.Finding{{Checker: "unavailability", Witnesses: []results.Witness{{
		Kind: "unavailability", Lock: "lock-0", From: at(100), To: at(1100), Text: "lock-0 could not be taken for 1.00 s: 200 dead users stood in its queue until their sessions ended",
	}}}}
	words := strings.Join(toldOf(t, synthetic{dir, r}).Explain(), "\n")
	want := "t+1.100 s  until here, lock-0 could not be taken for 1.00 s: 200 dead users stood in its queue until their sessions ended\n  t+1.100 s  client-2,"
	if !strings.Contains(words, want) {
		t.Errorf("no %q in\n%s", want, words)
	}
}

// TestUnreleasedKeyIsShown once, at a server that was asked for it later.
func TestUnreleasedKeyIsShown(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	a := w.acquire(0, 5, 6, 0, 10_000)
	w.release(a, 50, history.Ok, 0)
	w.env.People = map[string]string{"A": "client-1"}
	dir := w.write(a)
	sc, err := scene.New(dir, baseReport(w, dir), w.env)
	must(t, err)
	for _, when := range []float64{30, 60, 70} {
		sc.Seen = append(sc.Seen, history.Observation{
			By: history.ByAwait, Node: "redlock-3", Fact: history.FactHolder + "lock-0", Answer: "k", User: &a.user, Grant: a.ref.Grant, Asked: at(when), Answered: at(when + 1),
		})
	}
	sc.Events = append(sc.Events, history.Event{Kind: history.Check, Phase: history.Invoke, Time: at(100), Op: 9}) // the picture ends here
	got := strings.Join(story.Tell(sc).Explain(), "\n")
	if want := "t+0.061 s  redlock-3 still has the key of A, although A has given it back"; strings.Count(got, "still has the key") != 1 || !strings.Contains(got, want) {
		t.Errorf("no %q in\n%s", want, got)
	}
}
