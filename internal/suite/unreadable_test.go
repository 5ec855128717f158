package suite

import (
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/lockquake/lockquake/internal/stories"
)

// TestAStoryThatCannotBeReadStopsNoOther: it is not run, and says why, whether its file is wrong or the scenario made
// from it.
func TestAStoryThatCannotBeReadStopsNoOther(t *testing.T) {
	t.Parallel()
	const head, body = "claim: It is short.\nturn: 1\n", "steps:\n  - {do: acquire, user: A, within: (long)}\n"
	m := maker{base: Cell{Lock: "redis/mine"}, subject: stories.Subject{Backend: "redis", TTL: time.Second}}
	m.subject.Lock.Name = "mine"
	for _, x := range stories.Read(fstest.MapFS{
		"a-file.yaml":     {Data: []byte(head + "trun: 2\n" + body)},
		"a-scenario.yaml": {Data: []byte(head + strings.ReplaceAll(body, "within", "whithin"))},
		"right.yaml":      {Data: []byte(head + body)},
	}) {
		if err := m.template(x, x.Name); err != nil {
			t.Fatal(err)
		}
	}
	if len(m.cells) != 3 {
		t.Fatalf("cells: %+v", m.cells)
	}
	want := map[string]string{
		"a-file": `scenarios/suite/a-file.yaml:3:1: unknown key "trun"`, "a-scenario": `a-scenario.yaml:5:28: steps.0: unknown key "whithin"`, "right": "",
	}
	for _, c := range m.cells {
		if why := want[c.Story]; !strings.HasPrefix(c.NotRun, why) || (why == "") != (c.NotRun == "" && c.State() == NotRun && c.Scenario.Name == "suite-right") || c.Missing != (why != "") {
			t.Errorf("%s: %q, want %q", c.Story, c.NotRun, why)
		}
	}
}
