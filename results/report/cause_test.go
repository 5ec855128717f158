package report

import (
	"strings"
	"testing"

	"github.com/lockquake/lockquake/history"
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
	s := toldOf(t, pausedRun(t, false))
	f := s.scene.faults[0]
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
		s.scene.faults = []history.Fault{f}
		s.faultMarks()
		began := want.began
		if want.name == "hold-back" { // it stands at the receiver
			began = "client-3: " + began
		}
		if b, e := marked(s, began), marked(s, want.ended); b != want.begin || e != want.end {
			t.Errorf("%s begins at %d and ends at %d, want %d and %d: %+v", want.name, b, e, want.begin, want.end, s.Marks)
		}
	}
}

// TestUserGoesOnBeforeWhatItDoes: that a user went on from a point is heard of later than what it did.
func TestUserGoesOnBeforeWhatItDoes(t *testing.T) {
	s := toldOf(t, pausedRun(t, false))
	passed := func(answer string, when float64) history.Observation {
		return history.Observation{By: history.ByPoint, Node: "client-3", Fact: "token-checked", Answer: answer, Asked: at(when), Answered: at(when)}
	}
	s.scene.seen, s.Marks = []history.Observation{passed("reached", 5005), passed("left", 9014.8)}, nil
	s.seenMarks()
	if got := marked(s, "goes on"); got != at(9013.6)-1 {
		t.Errorf("goes on at %d, want just before the write of %d", got, at(9013.6))
	}
	s.scene.seen, s.Marks = []history.Observation{passed("reached", 5005), passed("left", 5006)}, nil
	s.seenMarks()
	if got := marked(s, "goes on"); got != at(5006) {
		t.Errorf("goes on at %d, want %d", got, at(5006))
	}
}

// TestNobodyIsStillInsideWhoCameTooLate: a grant whose validity was over when it came is not one that ends while its holder is inside.
func TestNobodyIsStillInsideWhoCameTooLate(t *testing.T) {
	s := toldOf(t, pausedRun(t, false))
	for i := range s.Holds {
		s.Holds[i].Ref.Valid = s.Holds[i].Ref.Start - 1
	}
	s.Marks = nil
	s.validityMarks()
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
	s := toldOf(t, pausedRun(t, false))
	a, b := s.Holds[0].Ref, s.Holds[1].Ref
	seen := func(answer string, u history.User, grant uint32, when float64) history.Observation {
		return history.Observation{By: history.ByObserve, Node: "etcd-1", Fact: history.FactHolder + "lock-0", Answer: answer, User: &u, Grant: grant, Asked: at(when), Answered: at(when + 1)}
	}
	s.scene.seen, s.Marks = []history.Observation{seen("k1", a.User, a.Grant, 5010), seen("k2", b.User, b.Grant, 7006)}, nil
	s.seenMarks()
	want := "etcd-1: the key of " + s.scene.name(a.User) + " is gone: it has that of " + s.scene.name(b.User)
	if got := marked(s, want); got != at(7007) {
		t.Errorf("%q is not told: %+v", want, s.Marks)
	}
}
