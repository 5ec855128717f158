package main

import (
	"bytes"
	"fmt"
	"regexp"
	"runtime"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/results/checkers"
	"github.com/lockquake/lockquake/results/report"
	"github.com/lockquake/lockquake/results/report/scene"
	"github.com/lockquake/lockquake/scenarios"
)

// found is the result of one run of a scenario.
type found struct {
	Verdict  string
	Reasons  []string
	Provider string
	Seed     uint64
	Replay   string
	Made     string              // version of lockquake
	Grants   int64               // judged grants, or what Of names
	Of       string              // "": grants
	Counts   map[string]int64    // those above zero, and those expected
	Measures map[string]*float64 // those expected, and some of a run under load; nil: not judged
	Versions map[string]string   // of the servers
	Words    []string            // the explanation
	Picture  []byte              // SVG; nil if there is nothing to draw
	Untold   []string            // demands of the scenario that the words or the picture leave out
}

// shown lists the counts that a page shows if they are above zero; the others are in the small print of a report.
var shown = []string{
	"double_grants", "overlapping_holds", "stale_writes", "fence_saves", "lost_updates", "lost_elements",
	"units_oversold", "double_bookings",
	"token_regressions", "foreign_releases", "stuck_locks", "acknowledged_writes_lost", "false_results", "orphans",
}

// shownUnderLoad lists the measures that a page shows of a story under load, if the run has them. A story by steps
// takes as long as its steps, and shows only the measures that it expects.
var shownUnderLoad = []string{"unavailability_ms_max", "wakeups_per_handoff", "requests_per_handoff", "handoff_p50_ms"}

// read judges a run directory and returns what the pages show of it.
func read(dir string) (f found, err error) {
	r, err := results.Judge(dir, checkers.All())
	if err != nil {
		return f, err
	}
	env, err := results.ReadEnv(dir)
	if err != nil {
		return f, err
	}
	f = found{
		Verdict: string(r.Verdict), Reasons: r.Reasons, Provider: r.Provider, Seed: r.Seed, Replay: published(r.Replay),
		Made:   env.Version,
		Counts: map[string]int64{}, Measures: map[string]*float64{}, Versions: map[string]string{},
	}
	f.Grants, f.Of = r.Subject()
	for name, v := range env.Service {
		if strings.HasSuffix(name, "version") {
			f.Versions[name] = v
		}
	}
	for _, name := range shown {
		if n := r.Counts[name]; n != nil && *n > 0 {
			f.Counts[name] = *n
		}
	}
	if len(env.People) == 0 { // no step names a user
		for _, name := range shownUnderLoad {
			if m := r.Measures[name]; m != nil {
				f.Measures[name] = m
			}
		}
	}
	for _, e := range r.Expectations {
		if n := r.Counts[e.Name]; n != nil && !e.Default {
			f.Counts[e.Name] = *n
		}
		if m, ok := r.Measures[e.Name]; ok {
			f.Measures[e.Name] = m
		}
	}
	var words bytes.Buffer
	if err := report.Explain(&words, dir, r); err != nil {
		return f, err
	}
	f.Words = strings.Split(strings.TrimRight(words.String(), "\n"), "\n")
	if f.Picture, err = report.Picture(dir, r); err == nil {
		f.Untold = untold(r, f)
	}
	return f, err
}

// inSVG matches a text in a picture.
var inSVG = regexp.MustCompile(`>([^<>{]+)<`)

// untold lists the demanded counts that the headline, the words or the picture of a run leave out.
func untold(r results.Report, f found) []string {
	var drawn strings.Builder
	for _, m := range inSVG.FindAllSubmatch(f.Picture, -1) {
		drawn.Write(append(m[1], ' '))
	}
	var out []string
	for _, e := range r.Expectations {
		x, ok := scenarios.ParseExpectation(e.Name, e.Want)
		if n := r.Counts[e.Name]; e.Default || n == nil || *n == 0 || ok && x.Free() {
			continue
		}
		for where, text := range map[string]string{
			"headline": f.Words[0], "words": strings.Join(f.Words[1:], "\n"),
			"picture": drawn.String(),
		} {
			if !scene.Mentions(text, e.Name) {
				out = append(out, e.Name+" is not in the "+where)
			}
		}
	}
	return out
}

// story is a story with its twins, and the results of their kept runs.
type story struct {
	scenarios.Scenario
	Twins []scenarios.Scenario
	Found map[string]found // by name
}

// stories lists all stories, without the results of runs.
func stories() ([]*story, error) {
	var out []*story
	for _, l := range scenarios.Names() {
		if !strings.HasPrefix(l.File, "stories/") {
			continue
		}
		one, err := scenarios.Load(l.Path)
		if err != nil || len(one) != 1 {
			return nil, fmt.Errorf("%s: %d scenarios: %w", l.Path, len(one), err)
		}
		if l.Path+".yaml" != l.File {
			last := out[len(out)-1]
			last.Twins = append(last.Twins, one[0])
			continue
		}
		out = append(out, &story{Scenario: one[0], Found: map[string]found{}})
	}
	return out, nil
}

// judge reads the kept runs of the story.
func (s *story) judge() error {
	return eachKept(archive(s.Name), func(dir, scenario string) (err error) {
		s.Found[scenario], err = read(dir)
		return err
	})
}

// judgeAll reads the kept runs of all stories, side by side.
func judgeAll(all []*story) error {
	var g errgroup.Group
	g.SetLimit(runtime.GOMAXPROCS(0))
	for _, s := range all {
		g.Go(s.judge)
	}
	return g.Wait()
}

// forms returns the story itself and its twins.
func (s *story) forms() []scenarios.Scenario {
	return append([]scenarios.Scenario{s.Scenario}, s.Twins...)
}

// names returns the names of the forms.
func (s *story) names() []string {
	var out []string
	for _, one := range s.forms() {
		out = append(out, one.Name)
	}
	return out
}

// published returns the command that repeats a run with an installed program.
func published(command string) string {
	if _, rest, ok := strings.Cut(command, " run "); ok {
		return "lockquake run " + rest
	}
	return command
}
