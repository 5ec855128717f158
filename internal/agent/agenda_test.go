package agent

import (
	"testing"
	"time"
)

func TestAgenda(t *testing.T) {
	var a agenda
	if a.first() != 0 || len(a.due(nil, 100)) > 0 {
		t.Error("an empty agenda has something")
	}
	for i, due := range []int64{30, 10, 20, 10} {
		if first := a.add(waiter{due: due, order: uint64(i), id: uint32(i)}); first != (i < 2) {
			t.Errorf("the one at %d is the first: %t", due, first)
		}
	}
	var got []uint32
	for _, w := range a.due(nil, 20) {
		got = append(got, w.id)
	}
	if len(got) != 3 || got[0] != 1 || got[1] != 3 || got[2] != 2 {
		t.Errorf("due at 20 are %v", got)
	}
	if a.first() != 30 || len(a.all()) != 1 || a.first() != 0 {
		t.Error("the last one is not there, or there twice")
	}
}

func TestLateness(t *testing.T) {
	var l lateness
	if l.at(0.5) != 0 {
		t.Error("nothing is late")
	}
	for i := range 1000 {
		l.add(time.Duration(i+1) * time.Microsecond)
	}
	for q, want := range map[float64]time.Duration{0.5: 500 * time.Microsecond, 0.99: 990 * time.Microsecond, 1: time.Millisecond} {
		if got := l.at(q); got < want || got > want+want/16+1 {
			t.Errorf("quantile %v: %v, want %v", q, got, want)
		}
	}
	for _, d := range []time.Duration{-1, 0, 1, 31, 32, 33, 1000, time.Second, time.Hour, 1 << 62} {
		if s := lateStep(d); s < 0 || s >= len(l.steps) || d > 0 && d < time.Hour && lateAbove(s) < d {
			t.Errorf("%v falls in step %d, up to %v", d, s, lateAbove(s))
		}
	}
}
