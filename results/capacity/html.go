package capacity

import (
	"bytes"
	_ "embed" // the page
	"fmt"
	"html/template"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/lockquake/lockquake/results/figure"
	"github.com/lockquake/lockquake/results/page"
)

//go:embed capacity.html.tmpl
var pageText string

var pageTemplate = template.Must(page.Template("capacity").Funcs(template.FuncMap{
	"milli": figure.Milli, "number": figure.Number,
	"handoff": func(i Interval) string {
		if i.N == 0 {
			return "nobody waited"
		}
		return figure.Milli(i.Mid)
	},
	"cpu": func(r Reading) string {
		var parts []string
		for _, name := range processes {
			if i, ok := r.CPU[name]; ok {
				parts = append(parts, fmt.Sprintf("%s %.2f", name, i.Mid))
			}
		}
		if r.Host != "" {
			parts = append(parts, "on "+r.Host)
		}
		return strings.Join(parts, ", ")
	},
	"columns": func() []string { // after the columns with the answer
		return slices.DeleteFunc(slices.Clone(Quantiles), func(q string) bool { return q == "p50" || q == "p99" })
	},
	"openWords": func() string { return openWords }, "tails": tails,
	"quantile": dotted, "span": span,
}).Parse(pageText))

// pageData is the data of the page template.
type pageData struct {
	Analysis
	CSS        template.CSS
	Head       []string
	Answers    []Answer
	Paragraphs []string
	Overview   [][]string
	Charts     []page.Chart
	Curves     []curveData
	Facts      []fact
}

type curveData struct {
	Curve
	Title   string
	Said    []string // fit and objective
	Limits  []string
	Omitted []string
	Tables  []table
	Spectra []page.Chart
}

type table struct {
	First    string // header of the first column
	Readings []Reading
}

// Open reports whether the readings are of an open loop.
func (t table) Open() bool {
	return slices.ContainsFunc(t.Readings, func(r Reading) bool { return r.Rate > 0 })
}

// Tried reports whether the runs were tested against an objective.
func (t table) Tried() bool {
	return slices.ContainsFunc(t.Readings, func(r Reading) bool { return r.Tried.Runs() > 0 })
}

// Trips reports whether a round trip was added or measured.
func (t table) Trips() bool {
	return slices.ContainsFunc(t.Readings, func(r Reading) bool { return r.RTT > 0 || r.Trip.N > 0 })
}

type fact struct{ Name, Value string }

// HTML writes the report as a page in one file.
func HTML(w io.Writer, a Analysis) error {
	d := pageData{
		Analysis: a, CSS: page.CSS(), Head: a.head(), Answers: a.Answers(), Paragraphs: a.Paragraphs(),
		Overview: a.overview(),
	}
	var err error
	if d.Charts, err = charts(a); err != nil {
		return err
	}
	for _, c := range a.Curves {
		one := curveData{Curve: c, Title: c.Name(), Limits: c.limits(), Omitted: c.omitted()}
		if p := c.policy(); p != "" {
			one.Said = append(one.Said, p)
		}
		if c.Fit != nil {
			one.Said = append(one.Said, c.bend(), "scalability law: "+c.Fit.law())
		} else if len(c.Closed) > 0 {
			one.Said = append(one.Said, "scalability law: not fitted: "+c.NoFit)
		}
		if a.Objective != nil {
			one.Said = append(one.Said, a.plan(c))
		}
		for _, t := range []table{{"users", c.Closed}, {"offered/s", c.Open}} {
			if len(t.Readings) > 0 {
				one.Tables = append(one.Tables, t)
			}
		}
		if one.Spectra, err = c.spectra(); err != nil {
			return err
		}
		d.Curves = append(d.Curves, one)
	}
	for _, m := range []map[string]string{a.Host, a.Service} {
		for _, k := range slices.Sorted(maps.Keys(m)) {
			d.Facts = append(d.Facts, fact{k, m[k]})
		}
	}
	var b bytes.Buffer
	if err := pageTemplate.Execute(&b, d); err != nil {
		return fmt.Errorf("page of the capacity: %w", err)
	}
	_, err = w.Write(b.Bytes())
	return err
}

// X returns the number of users of a reading, or the offered rate.
func (r Reading) X() string {
	if r.Rate > 0 {
		return figure.Number(r.Rate)
	}
	return figure.Count(r.Users)
}

// LatencyParts returns a latency and its bounds.
func (r Reading) LatencyParts(quantile string) [2]string {
	middle, bounds := spanParts(r.Latency[quantile])
	return [2]string{middle, bounds}
}

// At returns a latency in words.
func (r Reading) At(quantile string) string { return r.latency(quantile) }
