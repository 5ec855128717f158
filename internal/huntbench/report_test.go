package main

import (
	"math"
	"slices"
	"testing"
)

// after is a hunt that reached its goal after so many seconds; below 0: it did not.
func after(seed int, random bool, seconds int64) Hunt {
	h := Hunt{Target: "a", Seed: seed, Random: random, Budget: 600_000}
	if seconds >= 0 {
		h.Found = new(seconds * 1000)
	}
	return h
}

// TestRatios: pairs have one seed, the budget stands for what was not found, and a pair without a finding says nothing.
func TestRatios(t *testing.T) {
	p := pairs{
		guided: []Hunt{after(1, false, 10), after(2, false, 60), after(3, false, -1), after(4, false, 5)},
		random: []Hunt{after(1, true, 40), after(2, true, -1), after(3, true, -1)},
	}
	if got, want := p.ratios(), []float64{4, 10}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	mean, low, high, n := speedup([]pairs{p, {}})
	if n != 1 || math.Abs(mean-math.Sqrt(40)) > 1e-9 || low < 4-1e-9 || high > 10+1e-9 || low > mean || high < mean {
		t.Errorf("%v (%v to %v) of %d targets", mean, low, high, n)
	}
	if got := seconds(p.random); got != "> 600" {
		t.Errorf("the median of one in three is %q", got)
	}
}

// TestRecordIsReadBack: a last line that was cut off is dropped, and what is in the record is not hunted again.
func TestRecordIsReadBack(t *testing.T) {
	file := t.TempDir() + "/record.jsonl"
	rec, err := openRecord(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := rec.add(after(1, true, 3)); err != nil {
		t.Fatal(err)
	}
	if _, err := rec.file.WriteString(`{"target": "a", "se`); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if rec, err = openRecord(file); err != nil || len(rec.hunts) != 1 {
			t.Fatalf("%v, %v", rec, err)
		}
		if a := (Target{Name: "a"}); !rec.has(a, 1, true) || rec.has(a, 1, false) || rec.has(a, 2, true) {
			t.Error("the record has another hunt than was made")
		}
	}
}

// TestTargets: each has a name of its own, and names a lock and a goal.
func TestTargets(t *testing.T) {
	seen := map[string]bool{}
	for _, x := range targets() {
		if seen[x.ID()] || x.Goal == "" || len(x.Args) < 4 {
			t.Errorf("%+v", x)
		}
		seen[x.ID()] = true
	}
}

// TestChoose: the name of one target may be part of another's.
func TestChoose(t *testing.T) {
	all := []Target{{Name: "etcd/mutex"}, {Name: "etcd/mutex keeps its word"}, {Name: "redis/a"}, {Name: "redis/b"}}
	for only, want := range map[string][]string{
		"":                        {"etcd/mutex", "etcd/mutex keeps its word", "redis/a", "redis/b"},
		"etcd/mutex":              {"etcd/mutex"},
		"etcd":                    {"etcd/mutex", "etcd/mutex keeps its word"},
		"redis,etcd/mutex":        {"etcd/mutex", "redis/a", "redis/b"},
		"redis/a,keeps,zookeeper": {"etcd/mutex keeps its word", "redis/a"},
		"zookeeper":               nil,
	} {
		var got []string
		for _, x := range choose(all, only) {
			got = append(got, x.Name)
		}
		if !slices.Equal(got, want) {
			t.Errorf("-only %q: %v, want %v", only, got, want)
		}
	}
}
