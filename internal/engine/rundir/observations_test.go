package rundir

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/engine/live"
	"github.com/lockquake/lockquake/results"
)

// TestObservations joins equal answers that come close after each other, and separates all others.
func TestObservations(t *testing.T) {
	const ms = int64(time.Millisecond)
	s := NewObservations()
	takes := Question{Step: 3, By: history.ByObserve, Node: "n1", Fact: history.FactTakes + "lock-0"}
	for _, r := range []Reply{
		{10 * ms, 11 * ms, "true", nil, nil},
		{30 * ms, 31 * ms, "true", nil, nil},
		{70 * ms, 72 * ms, "true", nil, nil},
		{90 * ms, 91 * ms, "READONLY", nil, nil},
		{110 * ms, 111 * ms, "", errors.New("no connection"), nil},
		{130 * ms, 131 * ms, "", errors.New("a timeout"), nil},
		{150 * ms, 151 * ms, "true", nil, nil},
		{251 * ms, 252 * ms, "true", nil, nil}, // 100 ms later
		{400 * ms, 401 * ms, "true", nil, nil}, // it may have changed meanwhile
	} {
		s.Add(takes, r)
	}
	who := history.MakeUser(1, 0)
	s.Granted("secret", live.GrantKey{User: who, Grant: 7})
	s.Granted("4711/0/0/1", live.GrantKey{User: who, Grant: 9})
	s.Add(Question{Step: 5, By: history.ByAnswer, Node: history.Service, Fact: history.FactHolder + "lock-0"}, Reply{Asked: 500 * ms, Answered: 501 * ms, Answer: "4711"})
	s.Granted("", live.GrantKey{User: who, Grant: 8}) // a client that does not report the id
	s.Add(Question{Step: 4, By: history.ByGrant, Node: "n2", Fact: history.FactHolder + "lock-0"}, Reply{Asked: 5 * ms, Answered: 6 * ms, Answer: "secret", Err: nil})
	dir := t.TempDir()
	if err := s.Write(dir); err != nil {
		t.Fatal(err)
	}
	got, err := results.ReadObserved(dir)
	if err != nil {
		t.Fatal(err)
	}
	line := func(answer, err string, asked, lastAnswered int64, count int, gap int64) history.Observation {
		return history.Observation{
			Step: 3, By: history.ByObserve, Node: "n1", Fact: takes.Fact, Answer: answer, Error: err,
			Asked: asked * ms, LastAnswered: lastAnswered * ms, Count: count, Gap: gap * ms,
		}
	}
	want := []history.Observation{
		{
			Step: 4, By: history.ByGrant, Node: "n2", Fact: "holder:lock-0", Answer: "secret", Asked: 5 * ms, LastAnswered: 6 * ms,
			Count: 1, User: &who, Grant: 7,
		},
		line("true", "", 10, 72, 3, 39), line("READONLY", "", 90, 91, 1, 0), line("", "no connection", 110, 131, 2, 19),
		line("true", "", 150, 252, 2, 100), line("true", "", 400, 401, 1, 0),
		{
			Step: 5, By: history.ByAnswer, Node: history.Service, Fact: "holder:lock-0", Answer: "4711", Asked: 500 * ms, LastAnswered: 501 * ms,
			Count: 1, User: &who, Grant: 9,
		},
	}
	if d := cmp.Diff(want, got, cmpopts.IgnoreFields(history.Observation{}, "Answered", "LastAsked")); d != "" {
		t.Error(d)
	}
}
