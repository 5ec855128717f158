package capacity

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files anew")

// golden compares with a file in testdata, all of which are of the invented sweep.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), string(got)); d != "" {
		t.Errorf("%s: %s\nif this is meant: go test ./results/capacity -update", path, d)
	}
}

func TestTextOfTheInventedSweep(t *testing.T) {
	var b bytes.Buffer
	if err := Text(&b, Analyse(invented())); err != nil {
		t.Fatal(err)
	}
	golden(t, "invented.txt", b.Bytes())
	for line := range strings.Lines(b.String()) {
		if n := len([]rune(strings.TrimRight(line, "\n"))); n > 100 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
}

// What is not known is said, and never a number.
func TestTextOfAnEmptySweep(t *testing.T) {
	for name, s := range map[string]Sweep{
		"nothing": {Schema: Schema},
		"left":    {Schema: Schema, Left: []Left{{Setting{Backend: "etcd", Lock: "mutex", Users: 1, Locks: 1}, "the budget was over"}}},
		"spoilt": {Schema: Schema, Points: []Point{{
			Setting{Backend: "etcd", Lock: "mutex", Users: 1, Locks: 1}, []Sample{{Spoilt: "the machine stood still", Cycles: 12345}},
		}}},
	} {
		var b bytes.Buffer
		if err := Text(&b, Analyse(s)); err != nil {
			t.Fatal(err)
		}
		if odd := regexp.MustCompile(`NaN|Inf|12,?345`).FindString(b.String()); odd != "" {
			t.Errorf("%s: %q in\n%s", name, odd, &b)
		}
		if name != "nothing" && !strings.Contains(b.String(), "known") && !strings.Contains(b.String(), "nothing was measured") {
			t.Errorf("%s:\n%s", name, &b)
		}
	}
}

func TestNumbers(t *testing.T) {
	for f, want := range map[float64]string{0: "0", 0.00012: "0.00012", 0.5: "0.5", 1: "1", 1.257: "1.26", 12.04: "12", 99.96: "100", 410.4: "410", 5900: "5,900", 1234567: "1,234,567", -1234: "-1,234"} {
		if got := number(f); got != want {
			t.Errorf("%g: %s, want %s", f, got, want)
		}
	}
	for f, want := range map[float64]float64{3579: 3500, 35: 35, 351: 350, 0: 0, 9.99: 9.9, 1000: 1000} {
		if got := round(f); got < want-1e-9 || got > want+1e-9 {
			t.Errorf("%g is rounded to %g, want %g", f, got, want)
		}
	}
}
