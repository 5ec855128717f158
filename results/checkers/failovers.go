// Failovers: how many double grants a killed server costs.
//
// Each injection that bit and ended a server's process is a failover, whether another server took its place or the same came back. The
// rate is the double grants of the run per failover, with the interval of 95 % that Garwood (1936) gives for a Poisson rate, and per lock
// that somebody held, and was entitled to, at the moment of the kill. Beside it stands the replication lag that was read just before each
// kill. Double grants of one failover come in bunches, so that interval is narrower than the truth. Failovers do not, so it is also told
// how many of them had a double grant at all: a double grant is of the last kill before its second grant.
//
// Example: ten failovers with 64 locks held at each, and two double grants: 0.2 a failover (0.024 to 0.72), 0.0031 a held lock. Both came
// after the third kill, so one failover of ten had any.
//
// It is a part of the checker of exclusion, which knows the open holds and the double grants. It cannot see:
//   - which failover a double grant came of, but by time: one that comes later than the next kill is taken for that one's
//   - which server a lock was on: in a Cluster the held locks are those of all primaries, and only those of the killed one were at stake
//   - a promotion that was seen by nobody within a second of the heal: it counts as a server that returned

package checkers

import (
	"slices"

	"gonum.org/v1/gonum/stat/distuv"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
)

type failovers struct {
	at   []int64 // when servers were killed, in order
	done int     // of these, those that the events have passed
	held int64   // locks that were held at these moments, summed up
	lag  int64   // bytes of replication lag at these moments, summed up

	// Of the failovers: those for which the lag is known, those after which it was asked who leads, and those of them after which another server did.
	lagged, followed, promoted int64

	hit map[int]bool // by place in at: those that had a double grant
}

var failoverMeasures = []results.Quantity{
	{Name: "failovers", Doc: "injections that ended a server's process"},
	{Name: "promotions", Doc: "of these, those after which another server was seen to lead; after the others the same server came back"},
	{Name: "failovers_with_double_grants", Doc: "of these, those that a double grant came after: its second grant lies between this kill and the next one"},
	{Name: "held_at_failover", Doc: "locks to which somebody was entitled when a server was killed, mean of the failovers; in a Cluster those of all its primaries"},
	{Name: "lag_at_failover_bytes", Doc: "what the killed servers had written and no replica had received, in bytes, at least: mean of the failovers for which it was read"},
	{Name: "double_grants_per_failover", Doc: "double grants of the run, for each failover; `_low` and `_high` are the 95 % interval"},
	{Name: "double_grants_per_failover_low", Doc: "its lower end"},
	{Name: "double_grants_per_failover_high", Doc: "its upper end: what a zero is worth"},
	{Name: "double_grants_per_held", Doc: "double grants of the run, for each lock that was held when a server was killed; `_low` and `_high` are the 95 % interval"},
	{Name: "double_grants_per_held_low", Doc: "its lower end"},
	{Name: "double_grants_per_held_high", Doc: "its upper end"},
}

func newFailovers(run results.Run) (c failovers) {
	for i := range run.Faults {
		f := &run.Faults[i]
		if atServer(run, f) && f.Traits != nil && f.Traits.Kills && f.Receipt.Status == history.Installed {
			c.at = append(c.at, f.Start)
			if f.Lead == nil {
				continue
			}
			c.followed++
			if f.Lead.New != "" {
				c.promoted++
			}
			if f.Lead.Lag != nil {
				c.lag += *f.Lead.Lag
				c.lagged++
			}
		}
	}
	slices.Sort(c.at)
	c.hit = map[int]bool{}
	return c
}

// doubled takes a double grant whose second grant was made at t.
func (c *failovers) doubled(t int64) {
	if i, _ := slices.BinarySearch(c.at, t); i > 0 {
		c.hit[i-1] = true
	}
}

// atServer tells whether a fault hit a server of the lock's service: neither a client nor what the lock protects.
func atServer(run results.Run, f *history.Fault) bool {
	return slices.ContainsFunc(f.Targets, func(t string) bool {
		_, client := history.ClientOf(t)
		return !client && !slices.Contains(run.Protected, t)
	})
}

// pass counts what is held, of all locks, at the failovers before t.
func (c *failovers) pass(t int64, locks [][]*hold) {
	for ; c.done < len(c.at) && c.at[c.done] < t; c.done++ {
		for _, open := range locks {
			if slices.ContainsFunc(open, func(h *hold) bool { return h.entitled(c.at[c.done], c.at[c.done]) }) {
				c.held++
			}
		}
	}
}

// measures are those of so many double grants; nil where no server was killed.
func (c *failovers) measures(double int64) map[string]*float64 {
	if len(c.at) == 0 {
		return nil
	}
	n, held := float64(len(c.at)), float64(c.held)
	out := map[string]*float64{"failovers": &n, "held_at_failover": new(held / n), "failovers_with_double_grants": new(float64(len(c.hit)))}
	low, high := Garwood(double)
	for name, v := range map[string]float64{"": float64(double), "_low": low, "_high": high} {
		out["double_grants_per_failover"+name] = new(v / n)
		if held > 0 {
			out["double_grants_per_held"+name] = new(v / held)
		}
	}
	if c.followed > 0 {
		out["promotions"] = new(float64(c.promoted))
	}
	if c.lagged > 0 {
		out["lag_at_failover_bytes"] = new(float64(c.lag) / float64(c.lagged))
	}
	return out
}

// Garwood is the 95 % interval of the mean of a Poisson count (Garwood, "Fiducial limits for the Poisson distribution", Biometrika 1936).
func Garwood(k int64) (low, high float64) {
	const tail = 0.025
	if k > 0 {
		low = distuv.ChiSquared{K: 2 * float64(k)}.Quantile(tail) / 2
	}
	return low, distuv.ChiSquared{K: 2*float64(k) + 2}.Quantile(1-tail) / 2
}
