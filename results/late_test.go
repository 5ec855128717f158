package results

import (
	"slices"
	"testing"
	"time"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/scenarios"
)

// TestLateFaults: more than the larger of 1 s and 10 % of the fault's duration, or after the load. Records without
// times are never late.
func TestLateFaults(t *testing.T) {
	const s, start = int64(time.Second), int64(1e15)
	receipt := func(status history.ReceiptStatus, done, slip int64) history.Receipt {
		return history.Receipt{Status: status, Time: start + 8*s, Done: done, Slip: slip}
	}
	freeze := func(lasts int64, r history.Receipt, healed ...history.Receipt) history.Fault {
		f := history.Fault{Name: "freeze", Target: "etcd-1", Planned: start + 5*s, Start: start + 5*s, For: lasts, Receipt: r}
		if len(healed) > 0 {
			f.Healed = &healed[0]
		}
		return f
	}
	inTime := receipt(history.Installed, start+5*s, 0)
	step := freeze(0, receipt(history.Installed, start+12*s, 0))
	step.Planned = start + 12*s
	for _, c := range []struct {
		name     string
		fault    history.Fault
		directed bool
		want     string
	}{
		{"in time", freeze(3*s, inTime, inTime), false, ""},
		{"late by the bound", freeze(3*s, receipt(history.Installed, start+6*s, s)), false, ""},
		{"late by more", freeze(3*s, receipt(history.Installed, start+6*s+1, s+1)), false, "bit 1.00 s late"},
		{"late by 10 %", freeze(30*s, receipt(history.Installed, start+8*s, 3*s)), false, ""},
		{"late by more than 10 %", freeze(30*s, receipt(history.Installed, start+8*s, 31*s/10)), false, "bit 3.10 s late"},
		{"outcome is unknown bit", freeze(3*s, receipt(history.Indeterminate, start+8*s, 3*s)), false, "bit 3 s late"},
		{"it did not bite", freeze(3*s, receipt(history.NotInstalled, start+8*s, 3*s)), false, ""},
		{"after the load", freeze(3*s, receipt(history.Installed, start+9*s+s/5, s/5)), false, "bit 200 ms after the end of the load"},
		{"there is no load", freeze(3*s, receipt(history.Installed, start+9*s+s/5, s/5)), true, ""},
		{"a step after the load", step, false, ""},
		{"undone late", freeze(3*s, inTime, receipt(history.Installed, start+12*s, 4*s)), false, "was undone 4 s late"},
		{"undone a little late", freeze(50*s, inTime, receipt(history.Installed, start+12*s, 4*s)), false, ""},
		{"an old record", freeze(0, receipt(history.Installed, 0, 0), receipt(history.Installed, 0, 0)), false, ""},
	} {
		d := directory{env: Env{Start: start, Directed: c.directed}, scenario: scenarios.Scenario{Run: scenarios.Run{For: 9 * time.Second}}}
		if got := d.lateness(c.fault); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// TestOneInTimeIsEnough: one injection in time is enough for an entry, as one that bit is.
func TestOneInTimeIsEnough(t *testing.T) {
	of := func(status history.ReceiptStatus, slip int64) history.Fault {
		return history.Fault{Name: "pause", Selector: "one", Entry: 1, Receipt: history.Receipt{Status: status, Slip: slip}}
	}
	const long = int64(5 * time.Second)
	late := []string{"pause on one bit 5 s late"}
	for _, c := range []struct {
		name   string
		faults []history.Fault
		want   []string
	}{
		{"one late", []history.Fault{of(history.Installed, long)}, late},
		{"one late, one in time", []history.Fault{of(history.Installed, long), of(history.Installed, 0)}, nil},
		{"one in time, one late", []history.Fault{of(history.Installed, 0), of(history.Installed, long)}, nil},
		{"one late, one that did not bite", []history.Fault{of(history.Installed, long), of(history.NotInstalled, 0)}, late},
		{"one late, one not made", []history.Fault{of(history.Installed, long), of(history.NotMade, 0)}, late},
	} {
		d := directory{faults: c.faults, env: Env{Directed: true}}
		if got := d.notBitten(); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	many := []string{"a", "b", "c", "d"}
	if got := someOf(many); got != "a; b; and 2 more" {
		t.Errorf("four late faults: %q", got)
	}
	c := circumstances{bit: 1, made: 3, late: many[:2]}
	if res := c.bitten(scenarios.Expectation{Op: "=", Value: 3}, ExpectationResult{Verdict: Unknown}); res.Verdict != Unknown || res.Reason != "1 of 3 injections bit in time: a; b" {
		t.Errorf("%+v", res)
	}
}
