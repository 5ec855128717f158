package links

import "testing"

func TestAgenda(t *testing.T) {
	var a delayQueue
	if a.first() != 0 || len(a.due(nil, 100)) > 0 {
		t.Error("an empty queue has something")
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
