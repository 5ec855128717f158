package run

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lockquake/lockquake/internal/campaign"
	"github.com/lockquake/lockquake/internal/cli"
	"github.com/lockquake/lockquake/internal/cluster"
	"github.com/lockquake/lockquake/internal/engine"
	"github.com/lockquake/lockquake/scenarios"
)

// TestRunPlan: each scenario runs as often as requested, one after another, and one that is named several times as
// often as that. A scenario that cannot run here does not stop the others, unless it is the only one. A run that
// breaks stops none. An invalid one ends the plan.
func TestRunPlan(t *testing.T) {
	t.Parallel()
	missing, wrong := engine.MissingError{Text: "no engine"}, engine.UsageError{Text: "no such key"}
	one := func(name string, cannot error) candidate {
		return candidate{Options: engine.Options{Request: engine.Request{Scenario: scenarios.Scenario{Name: name}, Provider: cluster.NewInproc(nil)}}, cannot: cannot}
	}
	for name, c := range map[string]struct {
		list   []candidate
		repeat int
		fails  map[string]error // by name: the error of its runs
		spent  string           // the scenario that the budget has no time for
		want   string
	}{
		"in turn":                {[]candidate{one("a", nil), one("b", nil)}, 2, nil, "", "a a b b"},
		"the same again":         {[]candidate{one("a", nil), one("b", nil), one("a", nil)}, 1, nil, "", "a b a (2)"},
		"one that cannot be run": {[]candidate{one("a", nil), one("b", missing), one("c", nil)}, 2, nil, "", "a a b c c"},
		"none before":            {[]candidate{one("a", missing), one("b", nil)}, 1, nil, "", "a b"},
		"found out when it ran":  {[]candidate{one("a", nil), one("b", nil)}, 3, map[string]error{"a": missing}, "", "a b b b"},
		"alone":                  {[]candidate{one("a", nil)}, 3, map[string]error{"a": missing}, "", "a"},
		"broken":                 {[]candidate{one("a", nil), one("b", nil)}, 2, map[string]error{"a": errors.New("it broke")}, "", "a a b b"},
		"no time":                {[]candidate{one("a", nil), one("b", nil), one("c", nil)}, 2, nil, "b", "a a c c"},
		"wrong":                  {[]candidate{one("a", nil), one("b", nil)}, 2, map[string]error{"a": wrong}, "", "a"},
	} {
		plan := runPlan{list: c.list, repeat: c.repeat, draw: true}
		var done []campaign.Result
		var order []string
		said := 0
		for len(done) < 20 {
			j, ok := plan.Next(done)
			if !ok {
				break
			}
			if j.Name == c.spent { // the campaign has no time for it
				done = append(done, campaign.Result{Job: j.Name, NotMade: campaign.Spent(time.Minute)})
				continue
			}
			order = append(order, j.Name)
			said += strings.Count(strings.Join(j.Title, "\n"), "provider ")
			r := campaign.Result{Job: j.Name, Err: j.Cannot}
			if r.Err == nil {
				r.Err = c.fails[j.Name]
				if j.Seed == 0 {
					t.Errorf("%s: no seed was drawn", name)
				}
			}
			if cli.ExitCode(r.Err) == cli.CodeMissing || cli.ExitCode(r.Err) == cli.CodeUsage {
				r.NotMade = r.Err.Error()
			}
			done = append(done, r)
		}
		if got := strings.Join(order, " "); got != c.want || said != 1 {
			t.Errorf("%s: %s, want %s; the provider was told %d times", name, got, c.want, said)
		}
	}
}
