package report

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/results/checkers"
	"github.com/lockquake/lockquake/results/figure"
	"github.com/lockquake/lockquake/results/page"
	"github.com/lockquake/lockquake/results/report/scene"
)

//go:embed report.html.tmpl
var pageText string

var pageTemplate = template.Must(page.Template("report").Funcs(template.FuncMap{
	"words": figure.Words, "judged": judged, "measured": measured, "exact": exact, "count": figure.Count[int64],
	"quantiles": quantiles, "faultTime": faultTime, "whom": whom, "injections": injections, "misses": misses,
	"answer": answer,
	"upper":  func(v results.Verdict) string { return strings.ToUpper(string(v)) },
}).Parse(pageText))

// pageData is the data of the page template.
type pageData struct {
	results.Report
	Env       results.Env
	CSS       template.CSS
	Picture   template.HTML
	Title     string      // of the picture
	Told      []string    // the same in words
	Top       *page.Chart // instead of a picture
	Charts    []page.Chart
	Missing   []string
	Sentence  string // next to the verdict
	Headlines []pair
	Notes     []string // the lock's remarks on its figures
	Outage    string   // how long which locks could not be taken, and why
	Failovers string   // how often a killed server cost double grants
	Cards     []card
	Quiet     []quantity
	Measured  []quantity
	Latencies []latencyRow
	Phases    []phase
	Facts     []facts
	Who       []string // the judged programs
	Witnesses []witnessView
}

type card struct {
	Name, Doc string
	Value     string
	Tone      string // class: a results.Tone, "zero" or "none"
}

type pair struct{ Name, Value string }

// quantity is a figure and its meaning.
type quantity struct{ Name, Value, Doc string }

type latencyRow struct {
	Name string
	results.Quantiles
}

type phase struct {
	Name, From, To string
	Latency        []latencyRow
}

type facts struct {
	Name  string
	Pairs []pair
}

type witnessView struct {
	results.Witness
	Title  string
	Window string
	Events []eventView
}

type eventView struct{ Time, User, What, Token, Valid, Value string }

var (
	svgHead = regexp.MustCompile(` xmlns="[^"]*"`)
	svgSize = regexp.MustCompile(` width="[^"]*" height="[^"]*">`)
)

// writePage writes report.html.
func writePage(dir string, r results.Report, m material) error {
	d := pageData{
		Report: r, Env: m.env, CSS: page.CSS(), Charts: m.charts, Missing: m.missing, Sentence: sentence(r),
		Headlines: headlines(r), Outage: scene.Outage(r), Notes: notes(r, m.env),
		Latencies: latencyRows(r.Latency), Facts: environment(m.env, r), Who: clientLines(r),
	}
	d.Cards, d.Quiet = cards(r)
	d.Failovers = failoverText(r)
	if n := len(d.Charts); m.svg == nil && n > 0 {
		d.Top, d.Charts = &d.Charts[n-1], d.Charts[:n-1]
	}
	if m.svg != nil {
		svg := string(svgHead.ReplaceAll(m.svg, nil))
		head := svgSize.FindStringIndex(svg)
		// The page sets the size; the file's own head carries it for viewers.
		d.Picture = template.HTML(svg[:head[0]] + ">" + svg[head[1]:])
		d.Title, d.Told = m.told.Title, m.told.Explain()[1:]
	}
	about := quantities()
	for _, n := range measureNames(r) {
		d.Measured = append(d.Measured, quantity{n, measured(r.Measures[n]), Plain(about[n].Doc)})
	}
	for _, p := range r.Phases {
		d.Phases = append(d.Phases, phase{
			p.Name, fmt.Sprintf("%.0f", p.FromMS), fmt.Sprintf("%.0f", p.ToMS),
			latencyRows(p.Latency),
		})
	}
	for _, f := range r.Findings {
		for _, w := range f.Witnesses {
			if scene.Drawing(w) == results.DrawGap {
				continue // the top shows it
			}
			d.Witnesses = append(d.Witnesses, viewWitness(w, m.env.Start))
		}
	}
	var b bytes.Buffer
	if err := pageTemplate.Execute(&b, d); err != nil {
		return fmt.Errorf("report page: %w", err)
	}
	// Evidence may quote addresses. They stay text, and look like it to tools that search the page for references.
	out := bytes.ReplaceAll(b.Bytes(), []byte("://"), []byte(":&#47;/"))
	return results.WriteAtomically(filepath.Join(dir, results.FileReport), out)
}

// cards returns the counts that mean something by themselves. Other counts above zero, or null, are listed with their
// meaning.
func cards(r results.Report) (out []card, quiet []quantity) {
	about := quantities()
	for _, n := range countNames(r) {
		v := r.Counts[n]
		c := card{Name: figure.Words(n), Doc: Plain(about[n].Doc), Value: judged(v), Tone: "zero"}
		switch {
		case about[n].Tone == results.Quiet:
			if v != nil && *v > 0 {
				quiet = append(quiet, quantity{n, judged(v), c.Doc})
			}
			continue
		case v == nil:
			c.Tone = "none"
		case *v > 0:
			c.Tone = string(about[n].Tone)
		}
		if late := r.Counts["outlived_holds"]; n == "overlapping_holds" && v != nil && *v > 0 && late != nil {
			c.Value, c.Name, _ = strings.Cut(figure.Of(*late, "holder")+" outlived the grant", " ")
			c.Doc = figure.Count(*v) + " overlapping holds: " + c.Doc
		}
		out = append(out, c)
	}
	return out, quiet
}

// quantities maps all counts and measures by name.
var quantities = sync.OnceValue(func() map[string]results.Quantity {
	all := map[string]results.Quantity{}
	for _, q := range checkers.All().Quantities() {
		all[q.Name] = q
	}
	return all
})

var markup = regexp.MustCompile("[`*]|\\[([^]]*)\\]\\([^)]*\\)")

// Plain removes the Markdown from a text.
func Plain(text string) string { return markup.ReplaceAllString(text, "$1") }

// broken lists the counts above zero with one of the given tones.
func broken(r results.Report, tones ...results.Tone) []string {
	var out []string
	about := quantities()
	for _, n := range countNames(r) {
		if v := r.Counts[n]; v != nil && *v > 0 && slices.Contains(tones, about[n].Tone) {
			out = append(out, figure.Count(*v)+" "+figure.Words(n))
		}
	}
	return out
}

// sentence says what the verdict means.
func sentence(r results.Report) string {
	switch r.Verdict {
	case results.Pass:
		switch {
		case len(r.Uncovered) > 0:
			return "PASS: every expectation was met. The run also found violations without an expectation: " +
				r.Uncovered.String() + "."
		case len(broken(r, results.Violation, results.Doubtful)) > 0:
			return "PASS: the run found the expected violation."
		}
		return "PASS: no forbidden violation was found, and the run could have found one."
	case results.Fail:
		return "FAIL: an expectation was not met."
	}
	return "UNKNOWN: the run proves nothing, for the reasons below."
}

// notes are the lock's remarks on figures of this run.
func notes(r results.Report, env results.Env) []string {
	var out []string
	for _, n := range env.Notes {
		if v := r.Measures[n.Measure]; v != nil && *v >= n.Least && *v <= n.Most {
			out = append(out, n.Text)
		}
	}
	for _, p := range r.Properties {
		out = append(out, "Property of the lock: "+p.String()+".")
	}
	return out
}

// headlines returns the figures that most readers come for.
func headlines(r results.Report) []pair {
	out := []pair{{"grants per second", measured(r.Measures["throughput_per_s"])}}
	if r.NoLock {
		out = []pair{{"accesses of the resource", figure.Count(r.Judged.Effects)}}
	}
	if n := r.Measures["offered_per_s"]; n != nil {
		out = append(out, pair{"offered per second", measured(n)})
	}
	for _, q := range acquireQuantiles(r) {
		out = append(out, pair{"acquire " + q.name, figure.Milli(q.ms)})
	}
	if v := r.Measures["unavailability_ms_max"]; v != nil {
		out = append(out, pair{"without a lock, at most", figure.Duration(int64(*v * 1e6))})
	}
	found := broken(r, results.Violation)
	if len(found) == 0 {
		found = []string{"none found"}
	}
	return append(out, pair{"violations", strings.Join(found, ", ")})
}

// quantile is one of a distribution.
type quantile struct {
	name string
	ms   float64
}

// acquireQuantiles returns the acquire quantiles that most readers come for, if there are enough samples.
func acquireQuantiles(r results.Report) (out []quantile) {
	q := shown(r.Latency["acquire"])
	if q.P50 != nil {
		out = append(out, quantile{"p50", *q.P50})
	}
	if q.P99 != nil {
		out = append(out, quantile{"p99", *q.P99})
	}
	return out
}

func latencyRows(m map[string]results.Quantiles) []latencyRow {
	var out []latencyRow
	for _, n := range order(m, results.Operations) {
		out = append(out, latencyRow{n, m[n]})
	}
	return out
}

// environment lists what a reader must know to trust the figures.
func environment(env results.Env, r results.Report) []facts {
	run := []pair{
		{"run", env.Run},
		{"started", env.Started},
		{"lockquake", env.Version},
		{"seed", strconv.FormatUint(r.Seed, 10)},
		{"provider", strings.TrimSuffix(r.Provider+": "+env.ProviderReason, ": ")},
		{"backend", r.Backend},
		{"lock", r.Lock},
		{"client", strings.Join(clientLines(r), "; ")},
		{"TTL", figure.Duration(env.TTL)},
		{"token", env.Token},
		{"workload", env.Workload},
		{"users", strconv.Itoa(env.Users)},
		{"resource", env.Resource},
		{"guard", env.Guard},
		{"recovered", strconv.FormatBool(env.Recovered)},
		{"final read", strconv.FormatBool(env.FinalRead)},
		{"run directory", r.RunDir},
	}
	if r.Clocks != nil {
		run = append(run, pair{"clocks", r.Clocks.Text()})
	}
	timings := map[string]string{}
	for k, v := range env.Timings {
		timings[k] = figure.Count(v) + " ms"
	}
	out := []facts{{"Run", slices.DeleteFunc(run, func(p pair) bool { return p.Value == "" })}}
	if env.Kept || env.Fresh != "" {
		kept := []pair{{"kept", strconv.FormatBool(env.Kept)}}
		if env.Fresh != "" {
			kept = append(kept, pair{"because", env.Fresh})
		} else {
			kept = append(kept, pair{"started by run", env.KeptFrom})
		}
		for _, p := range env.KeptProof {
			kept = append(kept, pair{p.What, p.Evidence})
		}
		out = append(out, facts{"Servers of an earlier run", kept})
	}
	settings := map[string]string{}
	for _, s := range env.Settings {
		settings[s.Server+" "+s.Name] = s.String()
	}
	for _, g := range []struct {
		name string
		m    map[string]string
	}{
		{"Service", env.Service},
		{"Settings of the servers", settings},
		{"Libraries", env.Libraries},
		{"Nodes", env.Cluster},
		{"Host", env.Host},
		{"Time spent", timings},
	} {
		var ps []pair
		for _, k := range slices.Sorted(maps.Keys(g.m)) {
			ps = append(ps, pair{k, g.m[k]})
		}
		if ps != nil {
			out = append(out, facts{g.name, ps})
		}
	}
	return out
}

func viewWitness(w results.Witness, start int64) witnessView {
	v := witnessView{
		Witness: w, Title: scene.Headline(w, "two clients"),
		Window: since(w.From, start) + " to " + since(w.To, start) + " ms",
	}
	for _, e := range w.Events {
		v.Events = append(v.Events, viewEvent(e, start))
	}
	return v
}

// since formats a time in ms since the start of the run.
func since(t, start int64) string { return strconv.FormatFloat(float64(t-start)/1e6, 'f', 3, 64) }

func viewEvent(e history.Event, start int64) eventView {
	v := eventView{Time: since(e.Time, start), User: e.User.String(), What: e.Kind.String() + " " + e.Phase.String()}
	if e.Code != history.CodeNone {
		v.What += " (" + history.CodeName(e.Code) + ")"
	}
	if e.Token != 0 {
		v.Token = strconv.FormatUint(e.Token, 10)
	}
	switch e.Kind {
	case history.Read, history.Write, history.EffectRead, history.EffectWrite, history.Final:
		v.Value = strconv.FormatInt(e.Value, 10)
	case history.Acquire, history.Renewed, history.Renew, history.Reenter, history.Ended:
		v.Valid = validity(e.Valid, start)
	}
	return v
}

func validity(t, start int64) string {
	switch t {
	case 0:
		return ""
	case history.ValidEndless:
		return "endless"
	case history.ValidUnknown:
		return "unknown"
	}
	return since(t, start)
}
