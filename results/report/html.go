package report

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
)

//go:embed report.html.tmpl
var pageText string

//go:embed report.css
var pageCSS string

var pageTemplate = template.Must(template.New("report").Funcs(template.FuncMap{
	"words": words, "judged": judged, "measured": measured, "exact": exact, "count": count,
	"quantiles": quantiles, "faultTime": faultTime, "whom": whom, "injections": injections, "misses": misses,
	"upper": func(v results.Verdict) string { return strings.ToUpper(string(v)) },
}).Parse(pageText))

// pageData is what the page is made of.
type pageData struct {
	results.Report
	Env       results.Env
	CSS       template.CSS
	Picture   template.HTML
	Title     string   // of the picture
	Told      []string // the same in words
	Charts    []chart
	Missing   []string
	Cards     []card
	Measured  []pair
	Latencies []latencyRow
	Phases    []phase
	Facts     []facts
	Who       []string // was judged
	Witnesses []witnessView
}

type card struct {
	Name, Doc string
	Value     string
	Tone      string // class: "bad", "warn", "some", "zero" or "none"
}

type pair struct{ Name, Value string }

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

// page writes report.html.
func page(dir string, r results.Report, m material) error {
	d := pageData{
		Report: r, Env: m.env, CSS: template.CSS(pageCSS), Charts: m.charts, Missing: m.missing, Cards: cards(r),
		Latencies: latencyRows(r.Latency), Facts: environment(m.env, r), Who: clientLines(r),
	}
	if m.svg != nil {
		svg := string(svgHead.ReplaceAll(m.svg, nil))
		head := svgSize.FindStringIndex(svg)
		// The page sets the size; the file's own head carries it for viewers.
		d.Picture = template.HTML(svg[:head[0]] + ">" + svg[head[1]:])
		d.Title, d.Told = m.told.Title, m.told.explain()[1:]
	}
	for _, n := range measureNames(r) {
		d.Measured = append(d.Measured, pair{n, measured(r.Measures[n])})
	}
	for _, p := range r.Phases {
		d.Phases = append(d.Phases, phase{p.Name, fmt.Sprintf("%.0f", p.FromMS), fmt.Sprintf("%.0f", p.ToMS), latencyRows(p.Latency)})
	}
	for _, f := range r.Findings {
		for _, w := range f.Witnesses {
			d.Witnesses = append(d.Witnesses, viewWitness(w, m.env.Start))
		}
	}
	var b bytes.Buffer
	if err := pageTemplate.Execute(&b, d); err != nil {
		return fmt.Errorf("report page: %w", err)
	}
	// Evidence may quote addresses. They stay text, and look like it to whoever searches the page for references.
	out := bytes.ReplaceAll(b.Bytes(), []byte("://"), []byte(":&#47;/"))
	return os.WriteFile(filepath.Join(dir, results.FileReport), out, 0o644)
}

// countDocs says what each count means, in a few words.
var countDocs = map[string]string{
	"double_grants":            "two users held the lock, both within their validity: the lock broke its promise",
	"overlapping_holds":        "two users were inside at once, at least one past its validity",
	"stale_writes":             "the resource applied a write of a holder after its successor had been there",
	"fence_saves":              "the resource refused such an access by its token",
	"lost_updates":             "acknowledged writes missing at the end",
	"lost_elements":            "acknowledged elements missing from their set at the end",
	"units_oversold":           "units sold that were not there",
	"double_bookings":          "acknowledged bookings of a seat that somebody else has at the end",
	"accounts_off":             "accounts that do not hold what was acknowledged for them",
	"sum_off":                  "by how much the sum over all accounts is off",
	"token_regressions":        "a later grant with a lower or equal token",
	"foreign_releases":         "a user freed a lock that another one held, and was missed",
	"acknowledged_writes_lost": "grants that the service had acknowledged, and had no more though their time was not over",
	"stuck_locks":              "users asked, nobody held it, and nobody got it in time",
}

func cards(r results.Report) []card {
	var out []card
	for _, n := range countNames(r) {
		c := card{Name: words(n), Doc: countDocs[n], Value: judged(r.Counts[n]), Tone: "zero"}
		switch v := r.Counts[n]; {
		case v == nil:
			c.Tone = "none"
		case *v > 0 && n == "fence_saves":
			c.Tone = "some"
		case *v > 0 && n == "overlapping_holds":
			c.Tone = "warn"
		case *v > 0:
			c.Tone = "bad"
		}
		out = append(out, c)
	}
	return out
}

func latencyRows(m map[string]results.Quantiles) []latencyRow {
	var out []latencyRow
	for _, n := range order(m, latencyOrder) {
		out = append(out, latencyRow{n, m[n]})
	}
	return out
}

// environment lists what a reader must know to believe the figures.
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
		{"TTL", duration(env.TTL)},
		{"token", env.Token},
		{"workload", env.Workload},
		{"users", strconv.Itoa(env.Users)},
		{"resource", env.Resource},
		{"guard", env.Guard},
		{"recovered", strconv.FormatBool(env.Recovered)},
		{"final read", strconv.FormatBool(env.FinalRead)},
		{"run directory", r.RunDir},
	}
	timings := map[string]string{}
	for k, v := range env.Timings {
		timings[k] = count(v) + " ms"
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
	for _, g := range []struct {
		name string
		m    map[string]string
	}{{"Service", env.Service}, {"Libraries", env.Libraries}, {"Nodes", env.Cluster}, {"Host", env.Host}, {"Time spent", timings}} {
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
	v := witnessView{Witness: w, Title: headline(w, nil), Window: since(w.From, start) + " to " + since(w.To, start) + " ms"}
	for _, e := range w.Events {
		v.Events = append(v.Events, viewEvent(e, start))
	}
	return v
}

// since writes a time in ms since the start of the run.
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
	case history.Acquire, history.Renewed, history.Renew, history.Ended:
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
