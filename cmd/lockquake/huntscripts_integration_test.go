//go:build integration

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockquake/lockquake/cmd/lockquake/asnode"
	"github.com/lockquake/lockquake/cmd/lockquake/nodes"
	"github.com/lockquake/lockquake/internal/campaign"
	"github.com/lockquake/lockquake/internal/cluster"
	"github.com/lockquake/lockquake/internal/engine"
	"github.com/lockquake/lockquake/internal/hunt/script"
	"github.com/lockquake/lockquake/internal/seed"
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/scenarios"
)

// scriptRuns makes one run of each script.
type scriptRuns struct {
	t     *testing.T
	space script.Space
	base  engine.Options
	from  int
	n     int
	tries map[string]script.Script
	sum   map[results.Verdict]int
	took  time.Duration
}

func (p *scriptRuns) Next(done []campaign.Result) (j campaign.Job, ok bool) {
	if len(done) >= p.n {
		return j, false
	}
	number := p.from + len(done)
	x := p.space.Draw(seed.Rand(uint64(number), "draw"))
	j = campaign.Job{Name: "try-" + strconv.Itoa(number), Options: p.base, Seed: uint64(number + 1)}
	j.Options.Scenario, j.Cannot = p.space.Scenario(x, false)
	p.tries[j.Name] = x
	return j, true
}

func (p *scriptRuns) Begin(campaign.Job, *engine.Options) {}

func (p *scriptRuns) End(j campaign.Job, r *campaign.Result) error {
	p.sum[r.Verdict]++
	p.took += time.Duration(r.Took) * time.Millisecond
	x := p.tries[j.Name]
	found := ""
	for name, n := range r.Report.Uncovered {
		found += fmt.Sprintf(" %s=%d", name, n)
	}
	for _, e := range r.Report.Expectations {
		if e.Verdict == results.Fail {
			found += fmt.Sprintf(" %s=%v", e.Name, *e.Got)
		}
	}
	p.t.Logf("%s: %s %s %dms kept=%t judged=%d%s [%s]", j.Name, r.Verdict, r.NotMade, r.Took, r.Kept, r.Judged.Grants, found, x.Text())
	if r.Verdict == results.Unknown || r.Verdict == "" || r.Broke != "" {
		text, _ := json.Marshal(x)
		p.t.Logf("   %s: %s\n   %s", r.Broke, strings.Join(r.Reasons, "\n   "), text)
	} else if r.Verdict == results.Pass {
		_ = os.RemoveAll(r.At)
	}
	return nil
}

// TestDrawnScriptsAreJudged runs random scripts: nearly all are judged. LOCKQUAKE_HUNT is
// "backend/lock/ttl/first/number".
func TestDrawnScriptsAreJudged(t *testing.T) {
	asked := os.Getenv("LOCKQUAKE_HUNT")
	if asked == "" {
		asked = "memory/exact/1s/0/5"
	}
	part := strings.Split(asked, "/")
	text := fmt.Sprintf("name: hunt-%s-%s\nclaim: Nothing is known yet.\nbackend: {use: %s, lock: %s, ttl: %s}\nworkload: {use: counter, resource: {use: register, guard: none}}\nrun: {seed: 1, settle: 200ms}\nexpect: {judged: \">=1\"}\n",
		part[0], part[1], part[0], part[1], part[2])
	sc, err := scenarios.Parse([]byte(text), "hunt.yaml")
	if err != nil {
		t.Fatal(err)
	}
	p := cluster.NewInproc(asnode.InProcess)
	if part[0] != "memory" {
		if p, _, err = nodes.Choose(t.Context(), "local"); err != nil {
			t.Fatal(err)
		}
	}
	o := engine.Options{Request: engine.Request{Scenario: sc, Provider: p, Catalog: nodes.Catalog()}, Out: t.TempDir(), Version: "test", Log: slog.New(slog.DiscardHandler)}
	if dir := os.Getenv("LOCKQUAKE_HUNT_DIR"); dir != "" {
		o.Out = dir
	}
	s, refused, err := script.NewSpace(t.Context(), script.Asked{Request: o.Request})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range refused {
		t.Log("refused: ", r)
	}
	from, _ := strconv.Atoi(part[3])
	n, _ := strconv.Atoi(part[4])
	plan := &scriptRuns{t: t, space: s, base: o, from: from, n: n, tries: map[string]script.Script{}, sum: map[results.Verdict]int{}}
	c := campaign.Campaign{Dir: o.Out, Kept: &engine.KeptServers{Agent: true}, Reader: plan}
	if _, err := c.Run(context.WithoutCancel(t.Context()), plan); err != nil {
		t.Error(err)
	}
	t.Logf("%s: %v of %d, %v in all", asked, plan.sum, n, plan.took)
	if 10*plan.sum[results.Unknown] > n {
		t.Errorf("%d of %d are unknown", plan.sum[results.Unknown], n)
	}
}
