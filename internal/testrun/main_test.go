package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// told returns the output of `go test -json` for a package of three tests, and of one more if more is set. TestB/loud
// fails between 10 s and 20 s.
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
			r := &record{}
			if err := r.read(strings.NewReader(c.told), &out); err != nil {
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

// TestGroups splits arguments.
func TestGroups(t *testing.T) {
	if got := fmt.Sprint(groups([]string{"-p", "2", "a", "then", "b"}), groups([]string{"a"})); got != "[[-p 2 a] [b]] [[a]]" {
		t.Error(got)
	}
}

// TestTheSecondRunHasTheSameTime checks that the second run of a test has the time limit of the first.
func TestTheSecondRunHasTheSameTime(t *testing.T) {
	if got := timeLimit([]string{"-count", "1", "-timeout", "150m", "./...", "then", "-timeout", "1m"}); !slices.Equal(got, []string{"-timeout", "150m"}) {
		t.Errorf("time limit %q", got)
	}
	if got := timeLimit([]string{"./...", "-timeout"}); got != nil {
		t.Errorf("time limit %q of none", got)
	}
}

// TestFlakyRuns compares two runs. In one of them a test passed the second time, which counts as red.
func TestFlakyRuns(t *testing.T) {
	dir := t.TempDir()
	passed := `{"Action":"pass","Package":"p","Test":"TestB/loud","Elapsed":3}` + "\n" + `{"Action":"pass","Package":"p","Elapsed":3}` + "\n"
	for name, text := range map[string]string{"quiet-1": passed, "loaded-1": told("") + passed} {
		to := filepath.Join(dir, name)
		for _, err := range []error{
			os.Mkdir(to, 0o755), os.WriteFile(filepath.Join(to, "tests-1.jsonl"), []byte(text), 0o600), os.WriteFile(filepath.Join(to, "result"), []byte("exit 0\n"), 0o600),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "quiet-2"), 0o755); err != nil { // under way
		t.Fatal(err)
	}
	var out strings.Builder
	if err := run(&out, []string{"-flaky", dir}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"1 tests were red in any of 2 runs", "p TestB/loud: loaded-1\n", "median of the quiet runs ==\n     3.0 s  p TestB/loud\n", "median of the loaded runs ==\n    10.0 s  p TestA\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("it does not say %q:\n%s", want, out.String())
		}
	}
}

// TestSummary has the tests of two files, and their packages.
func TestSummary(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tests.jsonl")
	if err := os.WriteFile(file, []byte(told("")), 0o600); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := run(&out, []string{"-summary", file, file}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"    10.0 s  p TestA\n    10.0 s  p TestB/loud\n", "    62.0 s  p\n    62.0 s  sum\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("it does not say %q:\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "TestB\n") {
		t.Errorf("a test is listed beside its subtest:\n%s", out.String())
	}
}
