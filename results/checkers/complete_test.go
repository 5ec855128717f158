package checkers

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
)

func TestIncompleteHistoryIsNotJudged(t *testing.T) {
	gone := func(process string) func(*runDir) {
		return func(d *runDir) {
			if err := os.Remove(filepath.Join(d.dir, results.DirHistory, process+".lqh")); err != nil {
				t.Fatal(err)
			}
		}
	}
	stats := func(c ...results.ClientStats) func(*runDir) {
		return func(d *runDir) { d.env.Start, d.env.Clients = 1, c }
	}
	two := []results.ClientStats{{Name: "client-1", Recorded: 4}, {Name: "client-2", Recorded: 4}}
	for _, c := range []struct {
		name          string
		change, after func(*runDir)
		file, reason  string // "" if it is judged
	}{
		{"complete", stats(two...), nil, "", ""},
		{"a client's file is missing", stats(two...), gone("client-2"), "client-2.lqh", "missing"},
		{"the engine's file is missing", nil, gone("engine"), "engine.lqh", "missing"},
		{"fewer events than were sent", stats(two[0], results.ClientStats{Name: "client-2", Recorded: 5}), nil, "client-2.lqh", "4 events"},
		{"more events than were sent", stats(two[0], results.ClientStats{Name: "client-2", Recorded: 3}), nil, "client-2.lqh", "4 events"},
		{"a node that was never started has none", func(d *runDir) { d.env.Clients = []results.ClientStats{{Name: "client-9", Dead: true}} }, nil, "", ""},
		{"a dead client tells no number", stats(two[0], results.ClientStats{Name: "client-2", Dead: true}), nil, "", ""},
		{"a lost client told as many as came", stats(two[0], results.ClientStats{Name: "client-2", Lost: true, Recorded: 4}), nil, "", ""},
		{"fewer than came of a lost client", stats(two[0], results.ClientStats{Name: "client-2", Lost: true, Recorded: 5}), nil, "client-2.lqh", "4 events"},
		{"but its file must be there", stats(two[0], results.ClientStats{Name: "client-2", Dead: true}), gone("client-2"), "client-2.lqh", "missing"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := prepared(t, serialScript, enough, c.change)
			if c.after != nil {
				c.after(d)
			}
			r, err := results.Judge(d.dir, All())
			if c.file == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			if !errors.Is(err, history.ErrCorrupt) || !strings.Contains(err.Error(), c.file) || !strings.Contains(err.Error(), c.reason) {
				t.Fatalf("error %v", err)
			}
			if r.Verdict != results.Unknown || r.Counts["double_grants"] != nil {
				t.Errorf("%s, double grants %v", r.Verdict, r.Counts["double_grants"])
			}
		})
	}
}

func TestLoadGeneratorIsWarnedOf(t *testing.T) {
	d := prepared(t, serialScript, enough, func(d *runDir) {
		d.env.Host = map[string]string{"cores": "2"}
		d.env.Clients = []results.ClientStats{{Name: "client-1", Recorded: 4, Lag: 12e6, CPU: 1e9}, {Name: "register", Recorded: 1, CPU: 1e9}}
	})
	r := judged(t, d)
	if m := r.Measures["client_cpu_share"]; m == nil || *m != 0.5 {
		t.Errorf("share %v", m)
	}
	all := strings.Join(r.Warnings, "\n")
	for _, want := range []string{"12.000 ms late", "50 %"} {
		if !strings.Contains(all, want) {
			t.Errorf("no word of %s in %q", want, r.Warnings)
		}
	}
}
