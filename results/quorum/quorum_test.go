package quorum

import (
	"testing"

	"github.com/lockquake/lockquake/history"
)

// TestAReadOfAMinorityIsNoEffect: it changed nothing, and no user got its answer.
func TestAReadOfAMinorityIsNoEffect(t *testing.T) {
	q := New([]string{"epoch-1", "epoch-2", "epoch-3"})
	for _, kind := range []history.Kind{history.EffectRead, history.EffectWrite} {
		if q.Take("epoch-1", &history.Event{Time: 5, Kind: kind, Phase: history.Ok, Valid: 1}) != None {
			t.Errorf("one of three decided a %v", kind)
		}
	}
	if left := q.Minority(); len(left) != 1 || left[0].Kind != history.EffectWrite || left[0].Phase != history.Info {
		t.Errorf("what remains is %+v", left)
	}
}

// TestAnEvenNumberOfReplicas: of four, three are a majority, and two refusals leave none.
func TestAnEvenNumberOfReplicas(t *testing.T) {
	q := New([]string{"a", "b", "c", "d"})
	does := func(replica string, phase history.Phase, number int64) Part {
		return q.Take(replica, &history.Event{Time: number, Kind: history.EffectWrite, Phase: phase, Valid: number})
	}
	for i, want := range []Part{None, None, Whole, None, None} {
		if got := does([]string{"a", "b", "c", "c", "d"}[i], history.Ok, 1); got != want { // one reports twice
			t.Errorf("application %d of a write is %d, want %d", i+1, got, want)
		}
	}
	for i, want := range []Part{None, Whole, None, None} {
		if got := does(q.replicas[i], history.Fail, 2); got != want {
			t.Errorf("refusal %d of a write is %d, want %d", i+1, got, want)
		}
	}
	does("a", history.Fail, 3) // no replica has applied it
	does("a", history.Ok, 4)
	does("b", history.Ok, 4)
	if left := q.Minority(); len(left) != 1 || left[0].Valid != 4 {
		t.Errorf("what remains is %+v", left)
	}
}
