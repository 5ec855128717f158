package proc

import (
	"os"
	"testing"
)

func TestAListThatNeverSettlesIsMarked(t *testing.T) {
	reads := 0
	never := func() (map[string]int, bool, error) { reads++; return map[string]int{"T": 3}, false, nil }
	got, err := whole(never)
	if err != nil || got["T"] != 3 || got[Unseen] != 1 || reads < 2 {
		t.Errorf("after %d reads: %v, %v", reads, got, err)
	}
	reads = 0
	later := func() (map[string]int, bool, error) { reads++; return map[string]int{"T": reads}, reads == 3, nil }
	if got, err := whole(later); err != nil || len(got) != 1 || got["T"] != 3 {
		t.Errorf("a list that settles at the third look: %v, %v", got, err)
	}
}

func TestCountsEveryThread(t *testing.T) {
	self, err := Find(os.Getpid())
	if err != nil {
		t.Skip(err)
	}
	s, err := self.Inspect()
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, k := range s.Threads {
		n += k
	}
	if n < 2 {
		t.Errorf("a Go program has several threads, seen: %v", s.Threads)
	}
}
