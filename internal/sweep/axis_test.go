package sweep

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockquake/lockquake/results/capacity"
)

func TestNumbers(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]int{
		"1":          {1},
		"1,2,4..256": {1, 2, 4, 8, 16, 32, 64, 128, 256},
		"1, 3..20":   {1, 3, 6, 12, 20},
		"5..5,7":     {5, 7},
	} {
		if got, err := Numbers(text); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s is %v, %v; want %v", text, got, err, want)
		}
	}
	for text, why := range map[string]string{
		"": "whole number", "0": "at least 1", "-3": "at least 1", "1,2,": "whole number", "8..4": "descending", "1.5": "whole number",
		"4..x": "whole number", "2,1..4": "2 is listed twice", "70000": "at most", "1..99999": "at most",
	} {
		if got, err := Numbers(text); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%q is %v, %v; want an error with %q", text, got, err, why)
		}
	}
}

func TestListsOfOtherKinds(t *testing.T) {
	t.Parallel()
	if got, err := Durations("0,1ms, 5ms"); err != nil || !slices.Equal(got, []time.Duration{0, 1e6, 5e6}) {
		t.Errorf("durations: %v, %v", got, err)
	}
	if got, err := Rates("100,2.5"); err != nil || !slices.Equal(got, []float64{100, 2.5}) {
		t.Errorf("rates: %v, %v", got, err)
	}
	if got, err := Words(`a,{b: 1, c: [2,3]},"x,y"`); err != nil || !slices.Equal(got, []string{"a", "{b: 1, c: [2,3]}", `"x,y"`}) {
		t.Errorf("words: %q, %v", got, err)
	}
	for what, read := range map[string]func() error{
		"a rate of zero":        func() error { _, err := Rates("100,0"); return err },
		"no number":             func() error { _, err := Rates("NaN"); return err },
		"a time without a unit": func() error { _, err := Durations("5"); return err },
		"a time below zero":     func() error { _, err := Durations("-5ms"); return err },
		"an empty word":         func() error { _, err := Words("a,,b"); return err },
		"too short a trip":      func() error { _, err := Trips("100us"); return err },
		"an unknown policy":     func() error { _, err := Retries("spin,later"); return err },
		"a key without values":  func() error { _, err := Other("workload.think"); return err },
	} {
		if read() == nil {
			t.Errorf("%s is taken", what)
		}
	}
}

// TestUsersAreSpread requires that users times clients is the requested number, on at most as many clients as there
// are.
func TestUsersAreSpread(t *testing.T) {
	t.Parallel()
	a, err := Users("1,2,3,7,9,32", 4)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"workload.clients=1 workload.users=1", "workload.clients=2 workload.users=1", "workload.clients=3 workload.users=1",
		"workload.clients=1 workload.users=7", "workload.clients=3 workload.users=3", "workload.clients=4 workload.users=8",
	}
	for i, c := range a.Choices {
		if got := strings.Join(c.Set, " "); got != want[i] {
			t.Errorf("choice %d is %q, want %q", i, got, want[i])
		}
	}
}

func TestLocksMayBeOwn(t *testing.T) {
	t.Parallel()
	a, err := Locks("1,64,own")
	if err != nil || len(a.Choices) != 3 {
		t.Fatal(a, err)
	}
	s := capacity.Setting{Users: 8, Locks: 8}
	a.Choices[2].Note(&s)
	if !s.Own || s.Locks != 1 {
		t.Errorf("%+v: points with own locks are not on one curve", s)
	}
}
