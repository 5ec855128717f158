package report

import (
	"strings"
	"testing"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/results/report/story"
)

// marked returns the time of the mark with that label, 0 without one.
func marked(s *story.Story, label string) int64 {
	for _, m := range s.Marks {
		if m.Label == label {
			return m.Time
		}
	}
	return 0
}

// TestFaultsStandBeforeWhatTheyCause: packets pass from the moment a fault is undone, and a leader is dead before
// another leads, whenever that was observed.
func TestFaultsStandBeforeWhatTheyCause(t *testing.T) {
	sc := sceneOf(t, pausedRun(t, false))
	f := sc.Faults[0]
	f.Start, f.Bit, f.Undo, f.End = at(5010), at(5020), at(9000), at(9013)
	for _, want := range []struct {
		name, began, ended string
		begin, end         int64
	}{
		{"hold-back", "packets to register are held back", "packets are released", f.Bit, f.Undo},
		{"partition", "cut off from register", "connected again", f.Bit, f.Undo},
		{"pause", "paused (SIGSTOP)", "runs again", f.Bit, f.Undo},
		{"restart", "killed (SIGKILL)", "serves again", f.Bit, f.End},
		{"kill", "killed (SIGKILL)", "", at(5014) - 1, 0},
	} {
		if f.Lead = nil; want.name == "kill" {
			f.Lead = &history.Lead{Old: "etcd-1", New: "etcd-2", Led: at(5014)}
		}
		f.Name, f.Params, f.Peers = want.name, "", []string{"register"}
		sc.Faults = asRead(t, f)
		s := story.Tell(sc)
		began := want.began
		if want.name == "hold-back" { // it is at the receiver
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

// TestDeathFollowsTheKill: a client is killed before it is dead, whenever the kill was observed.
func TestDeathFollowsTheKill(t *testing.T) {
	sc := sceneOf(t, pausedRun(t, false))
	f := sc.Faults[0]
	f.Name, f.Start, f.Bit, f.End, f.Undo = "kill", at(5011), at(5014), 0, 0
	sc.Faults = asRead(t, f)
	c, _ := history.ClientOf(f.Targets[0])
	sc.Events = append(sc.Events, history.Event{Kind: history.Dead, Phase: history.Info, User: history.MakeUser(c, 0), Time: at(5012)})
	s := story.Tell(sc)
	if got := marked(s, "killed (SIGKILL)"); got != at(5012)-1 {
		t.Errorf("killed at %d, want just before %d: %+v", got, at(5012), s.Marks)
	}
}

// TestUserContinuesBeforeItsNextAction: the report that a user went on from a point arrives later than the user's next
// actions.
func TestUserContinuesBeforeItsNextAction(t *testing.T) {
	sc := sceneOf(t, pausedRun(t, false))
	passed := func(answer string, when float64) history.Observation {
		return history.Observation{By: history.ByPoint, Node: "client-3", Fact: "token-checked", Answer: answer, Asked: at(when), Answered: at(when)}
	}
	sc.Seen = []history.Observation{passed("reached", 5005), passed("left", 9014.8)}
	if got := marked(story.Tell(sc), "goes on"); got != at(9013.6)-1 {
		t.Errorf("goes on at %d, want just before the write of %d", got, at(9013.6))
	}
	sc.Seen = []history.Observation{passed("reached", 5005), passed("left", 5006)}
	if got := marked(story.Tell(sc), "goes on"); got != at(5006) {
		t.Errorf("goes on at %d, want %d", got, at(5006))
	}
}

// TestExpiredGrantDoesNotEndInside: a grant whose validity was over on arrival does not end while its holder is
// inside.
func TestExpiredGrantDoesNotEndInside(t *testing.T) {
	sc := sceneOf(t, pausedRun(t, false))
	for i := range sc.Holds {
		sc.Holds[i].Valid = sc.Holds[i].Start - 1
	}
	ended := 0
	for _, m := range story.Tell(sc).Marks {
		if m.Label == "not known to be entitled" {
			ended++
		}
		if strings.Contains(m.Say, "still inside") || strings.HasPrefix(m.Label, "validity") {
			t.Errorf("%+v", m)
		}
	}
	if ended != len(sc.Holds) {
		t.Errorf("%d of %d validities that were over are told", ended, len(sc.Holds))
	}
}

// TestServersThatShareALaneAreHeard: a server's answer about a lock is shown at the shared lane, with the server's
// name.
func TestServersThatShareALaneAreHeard(t *testing.T) {
	sc := sceneOf(t, pausedRun(t, false))
	a, b := sc.Holds[0], sc.Holds[1]
	seen := func(answer string, u history.User, grant uint32, when float64) history.Observation {
		return history.Observation{By: history.ByObserve, Node: "etcd-1", Fact: history.FactHolder + "lock-0", Answer: answer, User: &u, Grant: grant, Asked: at(when), Answered: at(when + 1)}
	}
	sc.Seen = []history.Observation{seen("k1", a.User, a.Grant, 5010), seen("k2", b.User, b.Grant, 7006)}
	want := "etcd-1: the key of " + sc.Name(a.User) + " is gone: it has that of " + sc.Name(b.User)
	s := story.Tell(sc)
	if got := marked(s, want); got != at(7007) {
		t.Errorf("%q is not told: %+v", want, s.Marks)
	}
}
