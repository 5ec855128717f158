package results

import (
	"fmt"
	"time"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results/figure"
)

// slack is the permitted delay of an injection or a heal. slackShare is the same as a share of the fault's planned
// duration. The larger of the two counts.
const (
	slack      = int64(time.Second)
	slackShare = 10 // 10 %
)

// lateness says how much later than planned an injection bit or was undone, as a verb phrase; "" if it was in time.
// An injection that did not bite is not late. Records without times give no lateness.
//
// Example: a freeze for 3 s is due at 5 s of a load of 9 s. The agent did not run from 4.9 s to 10.9 s, so the freeze
// bit at 10.9 s. It proves nothing about a lock that is hardly used any more.
func (d *directory) lateness(f history.Fault) string {
	most, made := max(slack, f.For/slackShare), f.Receipt.Status == history.Installed ||
		f.Receipt.Status == history.Indeterminate
	loadEnd := d.env.Start + int64(d.scenario.Run.For)
	switch {
	case made && f.Receipt.Slip > most:
		return "bit " + figure.Duration(f.Receipt.Slip) + " late"
	case made && !d.env.Directed && f.Planned < loadEnd && f.Receipt.Done > loadEnd:
		return "bit " + figure.Duration(f.Receipt.Done-loadEnd) + " after the end of the load"
	case made && f.Healed != nil && f.Healed.Slip > most:
		return "was undone " + figure.Duration(f.Healed.Slip) + " late"
	}
	return ""
}

// lateFaults says how late each late fault was.
func lateFaults(faults []FaultResult) (why []string) {
	for _, f := range faults {
		if f.Late != "" {
			why = append(why, fmt.Sprintf("%s on %s %s", f.Name, f.Target, f.Late))
		}
	}
	return why
}

// stoppedFromOutside names servers that were stopped for longer than the given ns although no fault asked for it.
func (d *directory) stoppedFromOutside(longer int64) (why []string) {
	for _, s := range d.env.Stopped {
		if s.To-s.From > longer {
			why = append(why, fmt.Sprintf("%s was stopped for %s, from %s on, without a fault", s.Node,
				figure.Duration(s.To-s.From), d.run.MS(s.From)))
		}
	}
	return why
}

// someOf shortens a list of reasons.
func someOf(all []string) string {
	const told = 2
	if len(all) <= told {
		return because(all)
	}
	return because(all[:told]) + fmt.Sprintf("; and %d more", len(all)-told)
}
