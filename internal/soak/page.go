package main

import (
	"bytes"
	"cmp"
	_ "embed" // page.tmpl
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"text/template"
	"time"

	"github.com/lockquake/lockquake/backends/all"
	faults "github.com/lockquake/lockquake/chaos/all"
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/results/checkers"
	"github.com/lockquake/lockquake/results/figure"
	"github.com/lockquake/lockquake/results/rates"
)

//go:embed page.tmpl
var pageText string

// The most failures, and bytes of a reason, that the page shows: it must stay below 36 kB.
const mostFailures, mostReason = 13, 80

// pages makes the page from the runs made so far and from its earlier content.
type pages struct {
	rec      *record
	old, now shown
}

// row returns a line of a table, based on the given runs.
func (p pages) row(runs []Run, cells ...string) string {
	was, ok := p.old.Rows[cells[0]]
	if ok && len(runs) == 0 {
		cells = was
	}
	if ok || len(runs) > 0 {
		p.now.Rows[cells[0]] = cells
	}
	return line(cells...)
}

// writePage writes the page for the runs made so far, and its data.
func writePage(rec *record, path string) error {
	old, err := readShown(path)
	if err != nil {
		return err
	}
	p := pages{rec, old, shown{
		Rows: map[string][]string{}, Faults: map[string]map[string]string{},
		On: madeOn(rec, old.On),
	}}
	parts := map[string]string{"on": strings.Join(p.now.On, ", "), "matrix": p.matrix()}
	parts["rest"], p.now.Failures, p.now.Missing = p.rest()
	for _, row := range storyRows() {
		if runs, local := rec.runs[row.ID], rec.runs[row.local().ID]; row.Provider == "docker" {
			parts["stories"] += p.row(slices.Concat(runs, local), row.Scenario, score(runs), score(local),
				found(slices.Concat(runs, local)), when(slices.Concat(runs, local)))
		}
	}
	for _, row := range healthyRows() {
		runs, grants := rec.runs[row.ID], int64(0)
		for _, r := range runs {
			grants += r.Judged.Grants
		}
		parts["healthy"] += p.row(runs, strings.TrimSuffix(row.ID, "@docker"), score(runs), figure.Count(grants),
			found(runs), when(runs))
	}
	for _, row := range familyRows() {
		runs, name := rec.runs[row.ID], strings.TrimPrefix(row.ID, familyStory+"+")
		if _, lost := losses(runs); len(runs) > 0 || old.Rows[name] != nil {
			parts["family"] += p.row(runs, name, score(runs), lost, when(runs))
		}
	}
	for _, row := range rateRows() {
		runs := rec.runs[row.ID]
		if strings.HasPrefix(row.Scenario, "work-") {
			parts["work"] += p.row(runs, slices.Concat([]string{row.Scenario, score(runs)}, repeats(runs),
				[]string{when(runs)})...)
		} else {
			parts["rates"] += p.row(runs, slices.Concat([]string{row.Scenario, score(runs)}, failovers(runs),
				[]string{when(runs)})...)
		}
	}
	p.now.Demands, _ = demands(rec)
	if old.Demands != "" && !slices.ContainsFunc(familyRows(), func(r Row) bool { return len(rec.runs[r.ID]) > 0 }) {
		p.now.Demands = old.Demands
	}
	parts["demands"] = p.now.Demands
	var b bytes.Buffer
	if err := template.Must(template.New("page").Parse(pageText)).Execute(&b, parts); err != nil {
		return err
	}
	if err := p.now.write(path); err != nil {
		return err
	}
	return os.WriteFile(path, b.Bytes(), 0o644)
}

func line(cells ...string) string { return "| " + strings.Join(cells, " | ") + " |\n" }

// score returns how many runs passed, of all.
func score(runs []Run) string {
	if len(runs) == 0 {
		return "–"
	}
	n := 0
	for _, r := range runs {
		if r.Verdict == passed {
			n++
		}
	}
	return fmt.Sprintf("%d/%d", n, len(runs))
}

// when returns the commits of the runs, and the date of the latest.
func when(runs []Run) string {
	var commits []string
	var date time.Time
	for _, r := range runs {
		if !slices.Contains(commits, r.Commit) {
			commits = append(commits, r.Commit)
		}
		if r.Date.After(date) {
			date = r.Date
		}
	}
	if len(runs) == 0 {
		return "–"
	}
	return strings.Join(commits, ", ") + date.Format(" 2006-01-02")
}

// found returns, for each significant count, in how many runs it was above zero.
func found(runs []Run) string {
	var out []string
	for _, q := range checkers.All().Quantities() {
		n := 0
		for _, r := range runs {
			if v := r.Counts[q.Name]; v != nil && *v > 0 && q.Tone != results.Quiet {
				n++
			}
		}
		if n > 0 {
			out = append(out, fmt.Sprintf("%s %d", strings.ReplaceAll(q.Name, "_", " "), n))
		}
	}
	return strings.Join(out, ", ")
}

// whenHead heads the column that says when the runs of a fault were made.
const whenHead = "commits, date"

// matrix returns the table of faults and backends.
func (p pages) matrix() string {
	cells := map[string]string{} // by scenario
	for _, row := range faultRows() {
		cells[row.Scenario] = "not run"
		if p.rec.missing[row.ID] != "" {
			cells[row.Scenario] = "missing"
		} else if runs := p.rec.runs[row.ID]; len(runs) > 0 {
			cells[row.Scenario] = score(runs)
		}
	}
	table := figure.Table{{"fault"}}
	for _, b := range all.All() {
		if !b.InProcess {
			table[0] = append(table[0], b.Name)
		}
	}
	for _, k := range faults.Kinds() {
		var runs []Run
		row, was, now := []string{k.Name}, p.old.Faults[k.Name], map[string]string{}
		for _, backend := range table[0][1:] {
			name := "fault-" + k.Name + "-" + backend
			cell := cmp.Or(cells[name], "–")
			if cell == "not run" {
				cell = cmp.Or(was[backend], cell)
			}
			now[backend], row, runs = cell, append(row, cell), append(runs, p.rec.runs[name+"@docker"]...)
		}
		if !slices.ContainsFunc(row[1:], func(cell string) bool { return cell != "–" }) {
			continue
		}
		now[whenHead] = when(runs)
		if len(runs) == 0 {
			now[whenHead] = cmp.Or(was[whenHead], now[whenHead])
		}
		p.now.Faults[k.Name], table = now, append(table, append(row, now[whenHead]))
	}
	table[0] = append(table[0], whenHead)
	return table.Markdown()
}

// rest returns the runs that did not pass, and the number of rows that are missing or were not run, by reason.
func (p pages) rest() (text string, failures []failure, lacks map[string]int) {
	failures = slices.DeleteFunc(slices.Clone(p.old.Failures),
		func(f failure) bool { return len(p.rec.runs[f.Row]) > 0 })
	left, lacks := 0, map[string]int{}
	for _, row := range allRows() {
		runs := p.rec.runs[row.ID]
		for _, r := range runs {
			if r.Verdict != passed {
				failures = append(failures, failed(row, r))
			}
		}
		if why := p.rec.missing[row.ID]; why != "" {
			lacks[why[max(0, strings.Index(why, "cannot be delivered")):]]++ // the row comes before it
		} else if len(runs) == 0 {
			left++
		}
	}
	if len(lacks) == 0 {
		lacks = p.old.Missing
	}
	text = fmt.Sprintf("%s did not pass; at most %d are listed. %d of %d rows are not in this record: they are unchanged, or have no runs.\n\n", figure.Of(len(failures), "run"), mostFailures, left, len(allRows()))
	for _, f := range failures[:min(len(failures), mostFailures)] {
		text += fmt.Sprintf("- %s, %s\n", f.Row, f.Said)
	}
	for _, why := range slices.Sorted(maps.Keys(lacks)) {
		text += fmt.Sprintf("- %d rows are missing on this machine: %.*s\n", lacks[why], 2*mostReason, why)
	}
	return text, failures, lacks
}

// failed describes a run that did not pass.
func failed(row Row, r Run) failure {
	minute, _, _ := strings.Cut(r.Load, " ")
	why, most := strings.Join(r.Reasons, "; "), 2*mostReason
	// the expectations without an answer come before it
	if _, after, ok := strings.Cut(why, ": "); ok && r.Verdict == results.Unknown {
		why, most = after, mostReason
	}
	return failure{row.ID, fmt.Sprintf("load %s: %s, %.*s", cmp.Or(minute, "unknown"), r.Verdict, most, why)}
}

// madeOn lists the machines and the versions of the services, in addition to those in before. The versions of
// libraries follow from the commit.
func madeOn(rec *record, before []string) []string {
	on := map[string]bool{}
	for _, what := range before {
		on[what] = true
	}
	for _, runs := range rec.runs {
		for _, r := range runs {
			for what := range strings.SplitSeq(cmp.Or(r.Machine, "unknown"), ", ") {
				on[what] = true
			}
			for name, v := range r.Versions {
				if strings.HasSuffix(name, "version") {
					on[name+" "+v] = true
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(on))
}

// losses adds up the lost elements in the judged runs of some members. The text has the confidence interval, and the
// smallest and largest share of one run.
func losses(runs []Run) (lost int64, text string) {
	of, least, most := int64(0), 100.0, 0.0
	for _, r := range runs {
		acknowledged, elements := r.Measures["acknowledged_elements"], r.Counts["lost_elements"]
		if r.Verdict == results.Unknown || elements == nil || acknowledged == nil || *acknowledged == 0 {
			continue
		}
		of, lost = of+int64(*acknowledged), lost+*elements
		share := 100 * float64(*elements) / *acknowledged
		least, most = min(least, share), max(most, share)
	}
	if of == 0 {
		return 0, "–"
	}
	all := rates.Share(int(lost), int(of))
	return lost, fmt.Sprintf("%s of %s, %.1f %% (%.1f–%.1f), %.0f–%.0f", figure.Count(lost), figure.Count(of),
		100*all.Value, 100*all.Low, 100*all.High, least, most)
}

// failovers pools the failovers of runs and returns these cells:
//   - the number of failovers, and after how many another server led;
//   - the lag;
//   - the locks held;
//   - the double grants, and the failovers that had any;
//   - double grants per such failover, per failover, and per lock held.
func failovers(runs []Run) []string {
	var all []results.Failover
	for _, r := range runs {
		if r.Verdict != results.Unknown {
			all = append(all, r.Failovers...)
		}
	}
	if len(all) == 0 {
		return slices.Repeat([]string{"–"}, 9)
	}
	rate := results.RateOf(all)
	behind, size, perHeld := "–", "–", "–"
	if rate.Lag != nil {
		behind = figure.Number(math.Round(*rate.Lag))
	}
	if rate.Size != nil {
		size = estimate(*rate.Size)
	}
	if rate.Held > 0 {
		perHeld = estimate(rate.Rate.Over(rate.Held))
	}
	return []string{
		figure.Count(rate.N), fmt.Sprintf("%d of %d", rate.Promoted, rate.Asked), behind,
		fmt.Sprintf("%.0f", rate.Held), figure.Count(rate.DoubleGrants),
		hits(rate), size, estimate(rate.Rate), perHeld,
	}
}

// repeats pools the work done, and the share that was repeated.
func repeats(runs []Run) []string {
	var pieces, again int64
	for _, r := range runs {
		if done, n := r.Measures["work_done"], r.Counts["repeated_work"]; r.Verdict != results.Unknown && done != nil &&
			n != nil {
			pieces, again = pieces+int64(*done)-*n, again+*n
		}
	}
	if pieces == 0 {
		return slices.Repeat([]string{"–"}, 3)
	}
	share := rates.Share(int(min(again, pieces)), int(pieces))
	return []string{
		figure.Count(pieces), figure.Count(again),
		fmt.Sprintf("%.0f (%.0f–%.0f)", 1e4*share.Value, 1e4*share.Low, 1e4*share.High),
	}
}

func hits(r results.FailoverRate) string {
	return fmt.Sprintf("%d of %d, %.3g %% (%.3g–%.3g)", r.Hit, r.N, 100*r.Share.Value, 100*r.Share.Low,
		100*r.Share.High)
}

func estimate(e rates.Estimate) string {
	return fmt.Sprintf("%.3g (%.3g–%.3g)", e.Value, e.Low, e.High)
}

// demands pools the runs of some members and reports whether they meet the demands on the family: the loss of one run
// is chance.
func demands(rec *record) (answers string, met bool) {
	var stopped, late []Run
	for _, row := range familyRows() {
		if fenced(row.ID) {
			late = append(late, rec.runs[row.ID]...)
		} else if strings.Contains(row.ID, "leader@") {
			stopped = append(stopped, rec.runs[row.ID]...)
		}
	}
	some, ofStopped := losses(stopped)
	none, ofLate := losses(late)
	answers = fmt.Sprintf("- Members without a fence whose leader is stopped must lose some. Lost: %s.\n- Members with a fence must lose none. Lost: %s.\n", ofStopped, ofLate)
	return answers, (some > 0 || ofStopped == "–") && none == 0
}
