// Load generator: the clients kept up with what they were asked to do, so that the figures are the lock's.
//
// Each client tells how many arrivals of an open loop never got a user, how late it began what was due, and how much
// CPU it used. An arrival that nobody served has no latency: what is measured without it looks better than it was.
//
// It judges nothing, and cannot see what the rest of the machine took from the clients, nor the share of clients that
// run within another process: they do not tell.

package results

import (
	"fmt"

	"github.com/lockquake/lockquake/history"
)

const (
	lateStart    = 10e6 // ns: an open loop that is later than this with its arrivals is worth a word
	crowdedShare = 0.4  // of the machine's CPU, from which clients compete with what they measure
)

type generator struct{ run Run }

func newGenerator(run Run) Checker { return &generator{run: run} }

// Observe passes over the next event: what is asked here is in env.json.
func (c *generator) Observe(*history.Event) {}

// Finish returns the finding.
func (c *generator) Finish() Finding {
	f := Finding{Checker: "generator", Verdict: Clean, Measures: map[string]*float64{"client_cpu_share": nil}}
	var cpu, unstarted int64
	var late ClientStats
	for _, s := range c.run.Clients {
		if _, ok := history.ClientOf(s.Name); !ok {
			continue
		}
		cpu += s.CPU
		unstarted += s.Unstarted
		if s.Lag > late.Lag {
			late = s
		}
	}
	if unstarted > 0 {
		f.Warnings = append(f.Warnings, fmt.Sprintf(
			"%d arrivals came due and never got a user: latencies of the open loop look better than they were", unstarted))
	}
	if late.Lag > lateStart {
		f.Warnings = append(f.Warnings, fmt.Sprintf("the schedule of the open loop lagged: %s began what was due up to %.3f ms late", late.Name, milli(late.Lag)))
	}
	if cpu <= 0 || c.run.Cores <= 0 || c.run.End <= c.run.Start {
		return f
	}
	share := float64(cpu) / (float64(c.run.End-c.run.Start) * float64(c.run.Cores))
	f.Measures["client_cpu_share"] = measure(share)
	if share > crowdedShare {
		f.Warnings = append(f.Warnings, fmt.Sprintf(
			"the clients used %.0f %% of the machine's CPU: the load generator, not the lock, may be the limit", 100*share))
	}
	return f
}
