package report

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/results/figure"
	"github.com/lockquake/lockquake/results/terminal"
	"github.com/lockquake/lockquake/scenarios"
)

// briefLines is the number of lines of a passing run, without those of its report and its directory.
const briefLines = 13

// short writes the verdict, its reasons, the met expectations, and how to see the rest: for a user who has just run
// it.
func short(w io.Writer, r results.Report, st terminal.Style) error {
	b, claim := st.Text(), st.Text()
	for _, reason := range r.Reasons {
		reasons(b, reason)
	}
	briefMet(b, r)
	textUncovered(b, also, r.Uncovered, st)
	textProperties(b, r)
	briefFigures(b, r)
	failoverLine(b, "rate    ", r)
	briefFaults(b, r)
	if r.Clocks != nil {
		b.Paragraph("clocks  ", r.Clocks.Text())
	}
	for _, line := range clientLines(r) {
		if r.Program != "" || strings.Contains(line, notOurs) {
			b.Paragraph("client  ", line)
		}
	}
	more := "-v prints counts, latencies, receipts and versions"
	if n := len(r.Warnings); n > 0 && r.Verdict == results.Pass {
		more += ", and " + figure.Of(n, "warning")
	} else {
		for _, x := range r.Warnings {
			b.Paragraph("warning ", x)
		}
	}
	b.Paragraph("more    ", more)
	if r.Replay != "" {
		fmt.Fprintf(b, "again   %s\n", r.Replay)
	}
	if r.Drawn != "" {
		fmt.Fprintf(b, "drawn   %s\n", r.Drawn)
	}
	claim.Paragraph("  ", r.Claim)
	lines := strings.SplitAfter(claim.String(), "\n")
	if room := max(briefLines-1-strings.Count(b.String(), "\n"), 1); r.Verdict == results.Pass && len(lines)-1 > room {
		lines = append(lines[:room-1], strings.TrimRight(lines[room-1], " .,:;\n")+" ...\n")
	}
	_, err := fmt.Fprintf(w, "%s: %s\n%s%s", r.Scenario, st.Verdict(r.Verdict), strings.Join(lines, ""), b.String())
	return err
}

// briefMet lists the met expectations; the reasons explain the others.
func briefMet(b *terminal.Text, r results.Report) {
	var met []string
	zeros := 0
	for _, e := range r.Expectations {
		if e.Verdict != results.Pass {
			continue
		}
		if e.Default && e.Want == "0" {
			zeros++
			continue
		}
		one := e.Name + " " + got(e)
		if e.Want != got(e) {
			one += " (" + e.Want + ")"
		}
		met = append(met, one)
	}
	if zeros > 0 {
		met = append(met, figure.Of(zeros, "other violation")+" 0")
	}
	const lead = "met     "
	text := strings.Join(met, ", ")
	if len(figure.Wrap(text, b.Width-len(lead))) > 4 {
		text = fmt.Sprintf("%d of %d expectations", len(met), len(r.Expectations))
	}
	b.Paragraph(lead, text)
}

// briefFigures says how much was judged, and how fast the lock was.
func briefFigures(b *terminal.Text, r results.Report) {
	n, what := r.Subject()
	text := figure.Of(n, what)
	if v := r.Measures["throughput_per_s"]; v != nil {
		text += ", " + figure.Number(*v) + " per second"
	}
	lead := "; acquire "
	for _, q := range acquireQuantiles(r) {
		text += lead + q.name + " " + figure.Milli(q.ms)
		lead = ", "
	}
	b.Paragraph("judged  ", text)
}

// failoverLine says how often killed servers cost double grants, in one run or in several together; nothing if none
// was killed.
func failoverLine(b *terminal.Text, lead string, rs ...results.Report) {
	if text := failoverText(rs...); text != "" {
		b.Paragraph(lead, text)
	}
}

// failoverText returns the same as text. Of several runs those without an answer are left out: unjudged ones cannot
// be pooled.
func failoverText(rs ...results.Report) string {
	var all []results.Failover
	for _, r := range rs {
		if r.Verdict != results.Unknown || len(rs) == 1 {
			all = append(all, r.Failovers...)
		}
	}
	if len(all) == 0 {
		return ""
	}
	return results.RateOf(all).Text(figure.Number)
}

// briefFaults writes a line for each of a few faults, or one for all.
func briefFaults(b *terminal.Text, r results.Report) {
	if sum := injections(r.Faults); sum != "" {
		b.Paragraph("faults  ", sum)
		return
	}
	for _, f := range r.Faults {
		b.Paragraph("fault   ", fmt.Sprintf("%s on %s: %s, %s%s", f.Name, whom(f), faultTime(f), answer(f),
			misses(f.Misses)))
	}
}

// got formats the figure of an expectation, rounded if that does not change the decision.
func got(e results.ExpectationResult) string {
	text := exact(e.Got)
	if e.Got == nil {
		return text
	}
	x, ok := scenarios.ParseExpectation(e.Name, e.Want)
	near := figure.Number(*e.Got)
	if rounded, err := strconv.ParseFloat(strings.ReplaceAll(near, ",", ""), 64); ok && err == nil &&
		x.Holds(rounded) == x.Holds(*e.Got) && (rounded != x.Value || rounded == *e.Got) {
		return near
	}
	return text
}
