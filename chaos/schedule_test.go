package chaos

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func show(plan []Planned) string {
	var b strings.Builder
	for _, p := range plan {
		fmt.Fprintf(&b, "%d@%s/%s ", p.Entry, p.At, p.For)
	}
	return strings.TrimSpace(b.String())
}

func TestPlan(t *testing.T) {
	s := time.Second
	for _, c := range []struct {
		name    string
		entries []Entry
		want    string
	}{
		{"once", []Entry{{At: 2 * s, For: s}}, "0@2s/1s"},
		{"none", nil, ""},
		{"again and again, the end excluded", []Entry{{At: s, For: 2 * s, Every: 3 * s}}, "0@1s/2s 0@4s/2s 0@7s/2s"},
		{"two interleaved", []Entry{{At: 3 * s, Every: 4 * s}, {At: s}}, "1@1s/0s 0@3s/0s 0@7s/0s"},
		{"at once, in the order of the entries", []Entry{{At: s}, {At: s}}, "0@1s/0s 1@1s/0s"},
		// Golden: what a seed gives must not change from version to version.
		{"jitter", []Entry{{At: s, Every: 2 * s, Jitter: s}}, "0@1.280639602s/0s 0@3.690367885s/0s 0@5.232540289s/0s 0@7.641096481s/0s 0@9.338469073s/0s"},
	} {
		got, err := Plan(c.entries, 10*s, 42)
		if err != nil || show(got) != c.want {
			t.Errorf("%s: %s (%v), want %s", c.name, show(got), err, c.want)
		}
	}
}

func TestPlanDependsOnTheSeedAlone(t *testing.T) {
	a := Entry{At: time.Second, Every: time.Second, Jitter: 500 * time.Millisecond}
	b := Entry{At: 2 * time.Second, Every: 3 * time.Second, Jitter: time.Second}
	plan := func(seed uint64, entries ...Entry) []Planned {
		t.Helper()
		p, err := Plan(entries, time.Minute, seed)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	alone := plan(7, a)
	if show(alone) != show(plan(7, a)) {
		t.Error("the same seed gives another plan")
	}
	if show(alone) == show(plan(8, a)) {
		t.Error("another seed gives the same plan")
	}
	var first []Planned
	for _, p := range plan(7, a, b) {
		if p.Entry == 0 {
			first = append(first, p)
		}
	}
	if show(first) != show(alone) {
		t.Error("an entry's jitter depends on the other entries")
	}
	for i, p := range alone {
		due := time.Second * time.Duration(i+1)
		if p.At < due || p.At > due+a.Jitter {
			t.Errorf("injection %d at %s, due at %s with a jitter of %s", i, p.At, due, a.Jitter)
		}
	}
}

func TestPlanRefuses(t *testing.T) {
	s := time.Second
	for _, c := range []struct {
		entry Entry
		want  string
	}{
		{Entry{At: 10 * s}, "not before the end"},
		{Entry{At: 9 * s, Jitter: s}, "not before the end"},
		{Entry{At: -s}, "negative"},
		{Entry{At: s, For: 2 * s, Every: 2 * s}, "too soon"},
		{Entry{At: s, For: s, Every: 2 * s, Jitter: s}, "too soon"},
		{Entry{At: s, Every: time.Microsecond}, "more than 10000"},
	} {
		if _, err := Plan([]Entry{c.entry}, 10*s, 1); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.entry, err, c.want)
		}
	}
}

func TestFits(t *testing.T) {
	for _, c := range []struct {
		lasting bool
		entry   Entry
		ok      bool
	}{
		{true, Entry{For: 1}, true},
		{true, Entry{}, true},
		{true, Entry{Every: 1}, false},
		{false, Entry{Every: 1}, true},
		{false, Entry{For: 1}, false},
	} {
		if err := (Kind{Lasting: c.lasting}).Fits(nil, c.entry); (err == nil) != c.ok {
			t.Errorf("lasting %t, %+v: %v", c.lasting, c.entry, err)
		}
	}
}
