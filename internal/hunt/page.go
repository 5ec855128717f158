package hunt

import (
	"bytes"
	_ "embed" // the page
	"fmt"
	"html/template"
	"io"
	"path/filepath"

	"gonum.org/v1/plot/plotter"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/results/figure"
	"github.com/lockquake/lockquake/results/page"
	"github.com/lockquake/lockquake/results/report"
)

//go:embed page.html.tmpl
var pageText string

var pageTemplate = template.Must(page.Template("hunt").Parse(pageText))

// shown is a script on the page, with the picture of a run of it.
type shown struct {
	Title   string
	Words   []string
	Picture template.HTML
	Missing string // why there is no picture
	Report  string // the report of that run, relative to the page
	YAML    string
}

// HTML writes the page of a hunt in a directory: the answer, the scripts with their pictures, what was tried, and the
// number of known behaviours over time.
func (r Result) HTML(w io.Writer, dir string) error {
	curve, err := r.chart()
	if err != nil {
		return err
	}
	var b bytes.Buffer
	err = pageTemplate.Execute(&b, struct {
		Result
		CSS    template.CSS
		Shown  []shown
		Charts []page.Chart
		Bites  [][]string
	}{r, page.CSS(), r.shown(dir), curve, r.bitRows()})
	if err != nil {
		return fmt.Errorf("page of the hunt: %w", err)
	}
	_, err = w.Write(b.Bytes())
	return err
}

// chart returns the curve of behaviours over time.
func (r Result) chart() ([]page.Chart, error) {
	if len(r.Curve) < 2 {
		return nil, nil
	}
	p := page.NewPlot("seconds of runs", "behaviours")
	p.X.Tick.Marker, p.Y.Tick.Marker = page.LinearTicks, page.LinearTicks
	p.X.Min, p.Y.Min = 0, 0
	points := plotter.XYs{{}}
	for _, x := range r.Curve {
		points = append(points, plotter.XY{X: float64(x.At) / 1e3, Y: float64(x.Behaviours)})
	}
	points = append(points, plotter.XY{X: float64(r.Took) / 1e3, Y: float64(r.Behaviours)})
	if err := page.Line(p, "behaviours", 0, plotter.PostStep, points); err != nil {
		return nil, err
	}
	svg, err := page.Inline(p, "Number of behaviours that were known, over the seconds that all runs took.")
	if err != nil {
		return nil, err
	}
	return []page.Chart{{
		Title: "What was learned", SVG: svg, Legend: []page.Entry{{Class: "key s0", Name: "behaviours"}},
		Caption: "A behaviour is something that a run shows, such as a grant beside a hold that outlived its validity. A curve that is flat at its end has little left to learn.",
	}}, nil
}

// shown returns the scripts of the page: the one handed out, then each finding as it was found.
func (r Result) shown(dir string) (out []shown) {
	if x := r.Shrunk; x.HandedOut() {
		s := shown{Title: x.Claim, Words: []string{x.Script.Text(), fmt.Sprintf(
			"It reached its goal in %d of %s that had no part in its choice.", x.Reached, figure.Of(x.Runs, "run"))}}
		if text, err := history.ReadFile(filepath.Join(dir, x.File), history.MostText); err == nil {
			s.YAML = string(text)
		}
		out = append(out, s.picture(dir, x.RunDir))
	}
	for _, f := range r.Findings {
		s := shown{
			Title: fmt.Sprintf("As it was found: %s in run %d", figure.Words(f.Goal), f.Run),
			Words: []string{f.Script.Text()},
		}
		if f.Witness != "" {
			s.Words = append(s.Words, f.Witness)
		}
		out = append(out, s.picture(dir, f.Dir))
	}
	return out
}

// picture adds the picture of a run.
func (s shown) picture(dir, run string) shown {
	if run == "" {
		s.Missing = "no run of it was kept"
		return s
	}
	at := filepath.Join(dir, run)
	rep, err := results.ReadReport(at)
	if err == nil {
		var svg []byte
		if svg, err = report.Picture(at, rep); svg != nil {
			s.Picture = template.HTML(svg)
		}
	}
	if err != nil {
		s.Missing = "its picture is not drawn: " + err.Error()
	}
	s.Report = filepath.ToSlash(filepath.Join(run, results.FileReport))
	return s
}
