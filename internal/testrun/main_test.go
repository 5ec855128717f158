package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// told is what `go test -json` says of a package of three tests, of which TestB/loud fails between 10 s and 20 s, and one more if more.
func told(more string) string {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var s strings.Builder
	line := func(second int, action, test, rest string) {
		fmt.Fprintf(&s, `{"Time":%q,"Action":%q,"Package":"p","Test":%q%s}`+"\n", at.Add(time.Duration(second)*time.Second).Format(time.RFC3339), action, test, rest)
	}
	line(0, "run", "TestA", "")
	line(10, "pass", "TestA", `,"Elapsed":10`)
	line(10, "run", "TestB", "")
	line(10, "run", "TestB/loud", "")
	line(12, "output", "TestB/loud", `,"Output":"it was late\n"`)
	line(12, "output", "TestB/loud", `,"Output":"--- FAIL: TestB/loud\n"`)
	line(20, "fail", "TestB/loud", `,"Elapsed":10`)
	line(20, "fail", "TestB", `,"Elapsed":10`)
	line(20, "run", "TestC", "")
	if more != "" {
		line(30, "fail", more, `,"Elapsed":10`)
	}
	line(31, "fail", "", `,"Elapsed":31`)
	return s.String()
}

// TestOnlyAStallExcuses has a test fail with and without a stall of the machine, and pass or fail the second time.
func TestOnlyAStallExcuses(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 15, 0, time.UTC)
	for name, c := range map[string]struct {
		told   string
		gap    time.Duration
		at     time.Time
		passes bool
		failed int
		asked  string
	}{
		"a stall, then it passes":            {told(""), leastStall, at, true, 0, "TestB/loud"},
		"a stall, then it fails":             {told(""), leastStall, at, false, 1, "TestB/loud"},
		"a shorter stall":                    {told(""), leastStall - 1, at, true, 1, ""},
		"a stall of another test":            {told(""), leastStall, at.Add(-6 * time.Second), true, 1, ""},
		"another test fails without a stall": {told("TestC"), leastStall, at, true, 1, "TestB/loud"},
		"the package dies": {
			`{"Action":"output","Package":"p","Output":"panic\n"}` + "\n" + `{"Action":"fail","Package":"p"}`, leastStall, at, true, 1, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			r, err := read(strings.NewReader(c.told), &out)
			if err != nil {
				t.Fatal(err)
			}
			var watched stalls
			if c.gap >= leastStall {
				watched.all = append(watched.all, stall{c.at, c.gap})
			} else {
				watched.add(int64(c.gap))
			}
			asked := ""
			failed, err := r.judge(&out, &watched, func(_ *pkg, test string) (*record, error) {
				asked = test
				return &record{pkgs: []*pkg{{failed: !c.passes}}}, nil
			})
			if err != nil || failed != c.failed || asked != c.asked {
				t.Errorf("%d failed, %q was run again, %v\n%s", failed, asked, err, out.String())
			}
			if c.failed > 0 != strings.Contains(out.String(), "FAIL\tp\t") {
				t.Errorf("its last line:\n%s", out.String())
			}
			if told := c.told != "" && strings.Contains("\n"+out.String(), "\n--- FAIL: TestB/loud\n"); told != (c.failed > 0 && name != "the package dies") {
				t.Errorf("it says that the test failed: %t\n%s", told, out.String())
			}
		})
	}
}

func TestPattern(t *testing.T) {
	if got := pattern("TestA/b(1.5)"); got != `^TestA$/^b\(1\.5\)$` {
		t.Error(got)
	}
}

// TestGroups takes arguments apart.
func TestGroups(t *testing.T) {
	if got := fmt.Sprint(groups([]string{"-p", "2", "a", "then", "b"}), groups([]string{"a"})); got != "[[-p 2 a] [b]] [[a]]" {
		t.Error(got)
	}
}

// TestTheSecondRunHasTheSameTime lets a test that is run again take as long as it might at first.
func TestTheSecondRunHasTheSameTime(t *testing.T) {
	if got := timeLimit([]string{"-count", "1", "-timeout", "150m", "./...", "then", "-timeout", "1m"}); !slices.Equal(got, []string{"-timeout", "150m"}) {
		t.Errorf("time limit %q", got)
	}
	if got := timeLimit([]string{"./...", "-timeout"}); got != nil {
		t.Errorf("time limit %q of none", got)
	}
}
