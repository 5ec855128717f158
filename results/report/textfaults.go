package report

import (
	"fmt"
	"strings"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/results/figure"
	"github.com/lockquake/lockquake/results/terminal"
)

func textFaults(b *terminal.Text, r results.Report) {
	if len(r.Faults) == 0 {
		return
	}
	b.WriteString("\nfaults\n")
	if sum := injections(r.Faults); sum != "" {
		b.Paragraph("  ", sum)
	}
	for _, f := range r.Faults {
		head := fmt.Sprintf("%s on %s", f.Name, whom(f))
		if f.Params != "" {
			head += ", " + f.Params
		}
		b.Paragraph("  ", fmt.Sprintf("%s: %s, %s%s", head, faultTime(f), answer(f), misses(f.Misses)))
		lead := "      saw: "
		if f.Receipt.Status == history.NotMade {
			lead = "      because: "
		}
		if f.Late != "" {
			b.Paragraph("      late: ", "it "+f.Late)
		}
		b.Paragraph(lead, f.Receipt.Evidence)
		if f.Healed != nil {
			b.Paragraph("      healed: ", string(f.Healed.Status)+"; "+f.Healed.Evidence)
		}
	}
}

// late replaces the receipt's answer if the fault bit, and it or its heal was late.
const late = "late"

// answer formats the result of an injection.
func answer(f results.FaultResult) string {
	if f.Late != "" {
		return late
	}
	return string(f.Receipt.Status)
}

// whom formats the target, and the scenario's selector if the target was only found at injection.
func whom(f results.FaultResult) string {
	if f.Selector == "" || f.Selector == f.Target {
		return f.Target
	}
	return f.Selector + " = " + f.Target
}

// injections summarises the receipts. A single installed receipt without a miss needs no summary.
func injections(faults []results.FaultResult) string {
	by, missed := map[string]int{}, 0
	for _, f := range faults {
		by[answer(f)]++
		missed += f.Misses
	}
	if len(faults) < 4 && by[string(history.NotMade)] == 0 {
		return ""
	}
	var parts []string
	for _, s := range []history.ReceiptStatus{
		history.Installed, late, history.NotInstalled, history.Indeterminate,
		history.NotMade,
	} {
		if n := by[string(s)]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, s))
		}
	}
	sum := figure.Of(len(faults), "injection") + ": " + strings.Join(parts, ", ")
	if missed > 0 {
		sum += "; " + figure.Of(missed, "target") + " escaped before they were hit"
	}
	return sum
}

// faultTime formats the time of a fault, in ms since the start.
func faultTime(f results.FaultResult) string {
	if f.Receipt.Status == history.NotMade {
		return fmt.Sprintf("at %.0f ms", f.StartMS)
	}
	if f.EndMS <= f.StartMS {
		return fmt.Sprintf("from %.0f ms", f.StartMS)
	}
	return fmt.Sprintf("%.0f to %.0f ms", f.StartMS, f.EndMS)
}

func misses(n int) string {
	switch n {
	case 0:
		return ""
	case 1:
		return " after 1 miss"
	}
	return fmt.Sprintf(" after %d misses", n)
}
