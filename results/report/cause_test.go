package report

import (
	"slices"
	"strings"
	"testing"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
)

// marked returns the time of the mark that says so, 0 for none.
func marked(s *story, label string) int64 {
	for _, m := range s.Marks {
		if m.Label == label {
			return m.Time
		}
	}
	return 0
}

// TestFaultsStandBeforeWhatTheyCause: packets pass from the moment a fault is undone, and a leader is dead before another leads, whenever that
// was seen.
func TestFaultsStandBeforeWhatTheyCause(t *testing.T) {
	m := markerOf(t, pausedRun(t, false))
	s := m.story
	f := m.scene.faults[0]
	f.Start, f.Bit, f.Undo, f.End = at(5010), at(5020), at(9000), at(9013)
	for _, want := range []struct {
		name, began, ended string
		begin, end         int64
	}{
		{"hold-back", "packets to register are held back", "packets are let go", f.Bit, f.Undo},
		{"partition", "cut off from register", "connected again", f.Bit, f.Undo},
		{"pause", "paused (SIGSTOP)", "runs again", f.Bit, f.Undo},
		{"restart", "killed (SIGKILL)", "serves again", f.Bit, f.End},
		{"kill", "killed (SIGKILL)", "", at(5014) - 1, 0},
	} {
		if f.Lead = nil; want.name == "kill" {
			f.Lead = &history.Lead{Old: "etcd-1", New: "etcd-2", Led: at(5014)}
		}
		f.Name, f.Params, f.Peers, s.Marks = want.name, "", []string{"register"}, nil
		m.scene.faults = asRead(t, f)
		faultMarker(m).faultMarks()
		began := want.began
		if want.name == "hold-back" { // it stands at the receiver
			began = "client-3: " + began
		}
		if b, e := marked(s, began), marked(s, want.ended); b != want.begin || e != want.end {
			t.Errorf("%s begins at %d and ends at %d, want %d and %d: %+v", want.name, b, e, want.begin, want.end, s.Marks)
		}
	}
}

// asRead returns a fault as it is read from an old record of that name.
func asRead(t *testing.T, f history.Fault) []history.Fault {
	t.Helper()
	dir := t.TempDir()
	f.Traits = nil
	writeFaults(t, dir, []history.Fault{f})
	fs, err := results.ReadFaults(dir)
	if err != nil {
		t.Fatal(err)
	}
	return fs
}

// TestDeathFollowsTheKill: a client is killed before it is dead, whenever the kill was seen.
func TestDeathFollowsTheKill(t *testing.T) {
	m := markerOf(t, pausedRun(t, false))
	s := m.story
	f := m.scene.faults[0]
	f.Name, f.Start, f.Bit, f.End, f.Undo = "kill", at(5011), at(5014), 0, 0
	m.scene.faults = asRead(t, f)
	c, _ := clientNumber(f.Targets[0])
	m.scene.events = append(m.scene.events, history.Event{Kind: history.Dead, Phase: history.Info, User: history.MakeUser(c, 0), Time: at(5012)})
	s.Marks = nil
	faultMarker(m).faultMarks()
	if got := marked(s, "killed (SIGKILL)"); got != at(5012)-1 {
		t.Errorf("killed at %d, want just before %d: %+v", got, at(5012), s.Marks)
	}
}

// TestUserGoesOnBeforeWhatItDoes: that a user went on from a point is heard of later than what it did.
func TestUserGoesOnBeforeWhatItDoes(t *testing.T) {
	m := markerOf(t, pausedRun(t, false))
	s := m.story
	passed := func(answer string, when float64) history.Observation {
		return history.Observation{By: history.ByPoint, Node: "client-3", Fact: "token-checked", Answer: answer, Asked: at(when), Answered: at(when)}
	}
	m.scene.seen, s.Marks = []history.Observation{passed("reached", 5005), passed("left", 9014.8)}, nil
	seenMarker(m).seenMarks()
	if got := marked(s, "goes on"); got != at(9013.6)-1 {
		t.Errorf("goes on at %d, want just before the write of %d", got, at(9013.6))
	}
	m.scene.seen, s.Marks = []history.Observation{passed("reached", 5005), passed("left", 5006)}, nil
	seenMarker(m).seenMarks()
	if got := marked(s, "goes on"); got != at(5006) {
		t.Errorf("goes on at %d, want %d", got, at(5006))
	}
}

// TestNobodyIsStillInsideWhoCameTooLate: a grant whose validity was over when it came is not one that ends while its holder is inside.
func TestNobodyIsStillInsideWhoCameTooLate(t *testing.T) {
	m := markerOf(t, pausedRun(t, false))
	s := m.story
	for i := range s.Holds {
		s.Holds[i].Ref.Valid = s.Holds[i].Ref.Start - 1
	}
	s.Marks = nil
	overlapMarker(m).validityMarks()
	if len(s.Marks) == 0 {
		t.Error("nothing is said of a validity that was over")
	}
	for _, m := range s.Marks {
		if strings.Contains(m.Say, "still inside") || m.Label != "not known to be entitled" {
			t.Errorf("%+v", m)
		}
	}
}

// TestServersThatShareALaneAreHeard: what one of them said of a lock is told at the lane that they share, with its name.
func TestServersThatShareALaneAreHeard(t *testing.T) {
	m := markerOf(t, pausedRun(t, false))
	s := m.story
	a, b := s.Holds[0].Ref, s.Holds[1].Ref
	seen := func(answer string, u history.User, grant uint32, when float64) history.Observation {
		return history.Observation{By: history.ByObserve, Node: "etcd-1", Fact: history.FactHolder + "lock-0", Answer: answer, User: &u, Grant: grant, Asked: at(when), Answered: at(when + 1)}
	}
	m.scene.seen, s.Marks = []history.Observation{seen("k1", a.User, a.Grant, 5010), seen("k2", b.User, b.Grant, 7006)}, nil
	seenMarker(m).seenMarks()
	want := "etcd-1: the key of " + m.scene.name(a.User) + " is gone: it has that of " + m.scene.name(b.User)
	if got := marked(s, want); got != at(7007) {
		t.Errorf("%q is not told: %+v", want, s.Marks)
	}
}

// TestWhoAnsweredGranted: a server that has the key, but whose answer never came, is not named among those that granted it.
func TestWhoAnsweredGranted(t *testing.T) {
	u := history.MakeUser(0, 0)
	sc := &scene{reasons: recordedReasons{}}
	for _, node := range []string{"redlock-1", "redlock-2", "redlock-3"} {
		sc.seen = append(sc.seen, history.Observation{By: history.ByGrant, Node: node, Fact: history.FactHolder + "lock-0", User: &u, Grant: 1, Asked: 10, Answered: 11})
	}
	h := results.HoldRef{User: u, Grant: 1, Start: 5}
	all := sc.seen.keepers(h)
	if got := sc.answered(h, all); len(all) != 3 || len(got) != 3 {
		t.Errorf("%q have the key, and %q granted it", all, got)
	}
	e := history.Event{Kind: history.Reason, User: u, Op: 1, Code: history.CauseAnsweredBy, Token: 0b101, Value: 3}
	sc.reasons.observe("client-1", &e)
	if got := sc.answered(h, all); !slices.Equal(got, []string{"redlock-1", "redlock-3"}) {
		t.Errorf("%q granted it", got)
	}
}
