// Failovers: how many double grants a killed server costs.
//
// Each injection that bit and ended a server's process is a failover, whether another server took over or the same
// one came back. A double grant belongs to the last failover before its second grant. Double grants of one failover
// come in bunches and are no independent events. So there are three measures, each with an interval of 95 % (see
// results/rates): the share of failovers with any, the double grants of such a failover, and the product. Next to
// them are the locks of the killed server with an entitled holder, and the replication lag just before.
//
// Example: ten failovers with 64 locks held at each, and two double grants, both after the third kill. One failover
// of ten had any (0.3 to 45 %). That is 0.2 a failover. But one bunch says little of the size of others, so the
// interval goes from 0.0025 (each such failover has one) to 28 (each has all 64).
//
// It is a part of the checker of exclusion, which knows the open holds and the double grants. It cannot see:
//   - which failover caused a double grant, except by time: one after the next kill counts for that kill
//   - the locks of a server, if the service spreads them and did not report that: then the locks of all servers count,
//     with a warning
//   - a promotion that was not observed within a second of the heal: it counts as a server that returned

package checkers

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
)

type failovers struct {
	run    results.Run
	killed []killed // in the order of time
	passed int      // failovers that the events have passed
}

// killed is a failover whose figures are still being collected.
type killed struct {
	results.Failover
	at     int64
	record *history.Fault
}

var failoverMeasures = slices.Concat(
	[]results.Quantity{
		{Name: "failovers", Doc: "injections that ended a server's process"},
		{Name: "promotions", Doc: "kills among them after which another server led; after the others the same server came back"},
		{
			Name: "failovers_with_double_grants",
			Doc:  "failovers among them with a double grant: its second grant lies between this kill and the next one",
		},
		{Name: "held_at_failover", Doc: "locks of the killed server that had an entitled holder at the kill, mean of the failovers"},
		{Name: "lag_at_failover_bytes", Doc: "bytes that a killed server had written and no replica had received, a lower bound; mean of the failovers for which it was read"},
	},
	estimated("failovers_with_double_grants_share",
		"share of the failovers with double grants, 0 to 1 (Clopper-Pearson interval)"),
	estimated("double_grants_when_any", "double grants per failover that had any; null if none had ([interval](#rates-of-failovers))"),
	estimated("double_grants_per_failover",
		"double grants per failover: the product of these two; if few failovers had any, it is bounded by the locks held ([interval](#rates-of-failovers))"),
	estimated("double_grants_per_held", "double grants per failover and lock held on the killed server"),
)

// estimated returns a measure and the ends of its interval.
func estimated(name, doc string) []results.Quantity {
	return []results.Quantity{
		{Name: name, Doc: doc},
		{Name: name + "_low", Doc: "lower end of its 95 % interval"},
		{Name: name + "_high", Doc: "upper end of its 95 % interval"},
	}
}

func newFailovers(run results.Run) (c failovers) {
	c.run = run
	for i := range run.Faults {
		f := &run.Faults[i]
		if !atServer(run, f) || f.Traits == nil || !f.Traits.Kills || f.Receipt.Status != history.Installed {
			continue
		}
		k := killed{Failover: results.Failover{Fault: f.ID}, at: f.Start, record: f}
		if f.Lead != nil {
			k.Promoted, k.Lag = new(f.Lead.New != ""), f.Lead.Lag
		}
		c.killed = append(c.killed, k)
	}
	slices.SortStableFunc(c.killed, func(a, b killed) int { return cmp.Compare(a.at, b.at) })
	return c
}

// doubled takes a double grant whose second grant was made at t.
func (c *failovers) doubled(t int64) {
	i, _ := slices.BinarySearchFunc(c.killed, t, func(k killed, t int64) int { return cmp.Compare(k.at, t) })
	if i > 0 {
		c.killed[i-1].DoubleGrants++
	}
}

// atServer reports whether a fault hit a server of the lock's service: neither a client nor what the lock protects.
func atServer(run results.Run, f *history.Fault) bool {
	return slices.ContainsFunc(f.Targets, func(t string) bool {
		_, client := history.ClientOf(t)
		return !client && !slices.Contains(run.Protected, t)
	})
}

// pass counts the held locks of the killed server at each failover before t.
func (c *failovers) pass(t int64, locks [][]*hold) {
	for ; c.passed < len(c.killed) && c.killed[c.passed].at < t; c.passed++ {
		k := &c.killed[c.passed]
		for i, open := range locks {
			if k.record.Shard.Has(c.run.LockName(uint16(i))) &&
				slices.ContainsFunc(open, func(h *hold) bool { return h.entitled(k.at, k.at) }) {
				k.Held++
			}
		}
	}
}

// into adds the failovers and their measures to a finding; nothing if no server was killed.
func (c *failovers) into(f *results.Finding) {
	if len(c.killed) == 0 {
		return
	}
	unknown := 0
	for _, k := range c.killed {
		f.Failovers = append(f.Failovers, k.Failover)
		if s := k.record.Shard; s != nil && s.Unknown != "" {
			if unknown++; unknown == 1 {
				f.Warnings = append(f.Warnings,
					fmt.Sprintf("the locks of %s at its kill are unknown (%s): the locks of all servers are counted as held there", k.record.Target, s.Unknown))
			}
		}
	}
	f.Measures = results.RateOf(f.Failovers).Figures()
}
