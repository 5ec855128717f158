package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/lockquake/lockquake/results"
)

const passed = results.Pass

// columns are the counts with a column of their own, in its order.
var columns = []string{
	"double_grants", "overlapping_holds", "stale_writes", "fence_saves", "lost_updates", "token_regressions",
	"foreign_releases", "stuck_locks",
}

// write makes the page from the states of all rows, those of older files among them: their commit says so.
func (o options) write() error {
	states := make([]State, len(o.rows))
	for i, row := range o.rows {
		var err error
		if states[i], err = keptState(o.file(row)); err != nil {
			return err
		}
		states[i].stale = states[i].Key != o.keys[row.ID()]
	}
	if err := os.MkdirAll(filepath.Dir(o.page), 0o755); err != nil {
		return err
	}
	return os.WriteFile(o.page, []byte(page(o.rows, states)), 0o644)
}

// page is the text of docs/soak.md.
func page(rows []Row, states []State) string {
	var b strings.Builder
	b.WriteString(`# Track record

Made by ` + "`make soak`" + `: each story as often as its row says. Every run counts; a row with a † was begun anew by hand, and what
became of the runs before is told [below](#put-aside), all that did not pass among them. *Passed* means that the run
met the story's expectations; an *unknown* run gave no answer (a fault that did not bite, a machine that stood still) and
does not count as passed. A count is the sum over all runs, and in how many of them it was above zero; – was not judged.
*Seconds* are those of a run in the middle, and of the longest, from its start to its report.
*Kept* counts the runs on servers of the run before, which had to be [shown to be clean](verdict.md#servers-that-are-kept); the others had servers of their own.
Behind the commit a \* says that something which the row depends on has changed since: the next soak runs it anew. A row without it ran
on what stands beside this page. Its commit may be one that is not to be had: most of those up to 23 November 2026 were put together with others
before they were published. The row is as good, for it is known by the contents of the files that it depends on, not by the commit.

`)
	fmt.Fprintf(&b, "Machine: %d cores, %s/%s. The load averages (1, 5, 15 min) are those before the row's least and most loaded run.\n\n",
		runtime.NumCPU(), runtime.GOOS, runtime.GOARCH)
	b.WriteString("| story | provider | shows | passed | unknown | fail | kept | grants judged |")
	for _, c := range columns {
		b.WriteString(" " + strings.ReplaceAll(c, "_", " ") + " |")
	}
	b.WriteString(" seconds | commit | date | load |\n|---|---|---|---|---|---|---|---|" + strings.Repeat("---|", len(columns)+4) + "\n")
	for i, row := range rows {
		if row.Member == nil && len(states[i].Runs) > 0 {
			b.WriteString(line(row, states[i]))
		}
	}
	b.WriteString(family(rows, states))
	b.WriteString(ranOn(rows, states))
	var none []string
	for i, row := range rows {
		switch {
		case states[i].Missing != "":
			fmt.Fprintf(&b, "\n%s %s\n", row.ID(), states[i].Missing)
		case len(states[i].Runs) == 0:
			none = append(none, row.ID())
		}
	}
	if len(none) > 0 {
		fmt.Fprintf(&b, "\nNot run yet (%d): %s.\n", len(none), strings.Join(none, ", "))
	}
	return b.String() + slow(rows, states) + "\n" + failures(rows, states)
}

// ranOn names what the rows ran on; those that ran on the same share a paragraph.
func ranOn(rows []Row, states []State) string {
	who := map[string][]string{} // row ids by what they ran on
	var order []string
	for i, row := range rows {
		v := states[i].Versions
		if len(v) == 0 {
			continue
		}
		var parts []string
		for _, k := range slices.Sorted(maps.Keys(v)) {
			parts = append(parts, k+" "+v[k])
		}
		text := strings.Join(parts, ", ")
		if who[text] == nil {
			order = append(order, text)
		}
		who[text] = append(who[text], row.ID())
	}
	var b strings.Builder
	for _, text := range order {
		fmt.Fprintf(&b, "\n%s ran on %s.\n", strings.Join(who[text], ", "), text)
	}
	return b.String()
}

// line is one row of the table.
func line(row Row, s State) string {
	verdicts := map[string]int{}
	var grants int64
	kept := 0
	for _, r := range s.Runs {
		verdicts[r.Verdict]++
		grants += r.Grants
		if r.Kept {
			kept++
		}
	}
	n := len(s.Runs)
	of := fmt.Sprintf("%d of %d", verdicts[string(results.Pass)], n) + s.progress(row)
	var b strings.Builder
	fmt.Fprintf(&b, "| %s | %s | %s | %s | %d | %d | %d | %d |", row.Name(), row.Provider, row.Shows, of,
		verdicts[string(results.Unknown)], n-verdicts[string(results.Pass)]-verdicts[string(results.Unknown)], kept, grants)
	for _, c := range columns {
		b.WriteString(" " + sum(s.Runs, c) + " |")
	}
	low, high := loads(s.Runs)
	fmt.Fprintf(&b, " %s | %s | %s | %s; %s |\n", seconds(s.Runs), s.from(), s.Runs[n-1].Began.Format("2006-01-02"), low, high)
	return b.String()
}

// seconds is what a run took in the middle, and the longest.
func seconds(runs []Run) string {
	var all []float64
	for _, r := range runs {
		all = append(all, r.Seconds)
	}
	slices.Sort(all)
	return fmt.Sprintf("%.1f (%.1f)", all[len(all)/2], all[len(all)-1])
}

// storyLimit is what a run of a story may take, in seconds, on a machine that has nothing else to do.
const storyLimit = 30

// slow names the rows of stories that have a run beyond the limit: where the load was high it says nothing about the story.
func slow(rows []Row, states []State) string {
	var over []string
	for i, row := range rows {
		if !row.story() {
			continue
		}
		longest, n := Run{}, 0
		for _, r := range states[i].Runs {
			if r.Seconds > storyLimit {
				n++
			}
			if r.Seconds > longest.Seconds {
				longest = r
			}
		}
		if n > 0 {
			over = append(over, fmt.Sprintf("%s (%d of %d, up to %.1f s at a load of %s)", row.ID(), n, len(states[i].Runs), longest.Seconds, longest.Load))
		}
	}
	if len(over) == 0 {
		return fmt.Sprintf("\nNo run of a story took longer than %d s.\n", storyLimit)
	}
	return fmt.Sprintf("\nRuns of stories that took longer than the %d s that one may take on a machine with nothing else to do: %s.\n", storyLimit, strings.Join(over, ", "))
}

// sum adds one count over all runs that judged it.
func sum(runs []Run, count string) string {
	var total int64
	judged, above := 0, 0
	for _, r := range runs {
		v := r.Counts[count]
		if v == nil {
			continue
		}
		judged++
		total += *v
		if *v > 0 {
			above++
		}
	}
	switch {
	case judged == 0:
		return "–"
	case judged < len(runs):
		return fmt.Sprintf("%d (judged in %d)", total, judged)
	case total == 0:
		return "0"
	}
	return fmt.Sprintf("%d (in %d)", total, above)
}

// loads returns the load averages before the least and the most loaded run.
func loads(runs []Run) (low, high string) {
	byLoad := func(a, b Run) int { return strings.Compare(pad(a.Load), pad(b.Load)) }
	return slices.MinFunc(runs, byLoad).Load, slices.MaxFunc(runs, byLoad).Load
}

// pad makes load averages comparable as text.
func pad(load string) string { return fmt.Sprintf("%12s", strings.SplitN(load, " ", 2)[0]) }

// failures lists every run that did not pass, with the place where its history is.
func failures(rows []Row, states []State) string {
	var b strings.Builder
	made := 0
	for i, row := range rows {
		made += len(states[i].Runs)
		for j, r := range states[i].Runs {
			if r.Verdict != string(passed) {
				fmt.Fprintf(&b, "- %s, run %d: %s; %s (`%s`)\n", row.ID(), j+1, r.Verdict, strings.Join(r.Reasons, "; "), r.Dir)
			}
		}
	}
	if made == 0 {
		return "Nothing was run.\n"
	}
	if b.Len() == 0 {
		return "No run failed or was unknown.\n" + aside(rows, states)
	}
	return "Runs that did not pass:\n\n" + b.String() + aside(rows, states)
}

// aside lists what was put aside by hand.
func aside(rows []Row, states []State) string {
	var b strings.Builder
	for i, row := range rows {
		for _, a := range states[i].Aside {
			var runs []string
			for _, verdict := range slices.Sorted(maps.Keys(a.Runs)) {
				runs = append(runs, fmt.Sprintf("%d %s", a.Runs[verdict], verdict))
			}
			fmt.Fprintf(&b, "- %s, %s: %s. %s", row.ID(), a.Commit, strings.Join(runs, ", "), a.Why)
			for _, r := range a.Reasons {
				b.WriteString("\n  - " + r)
			}
			b.WriteString("\n")
		}
	}
	if b.Len() == 0 {
		return ""
	}
	return "\n## Put aside\n\nRuns that were put aside by hand, and their rows begun anew (`go run ./internal/soak -only ROWS -anew WHY`):\n\n" + b.String()
}
