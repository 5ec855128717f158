// Package checkers is the list of all checkers. This folder has those that know holds and users' requests, one file
// each. The folders below have the others: harm (what the lock protects), costs (costs of grants), served (what users
// got) and keptup (whether the run kept up). Two folders have no checkers but what several use: users, and evidence
// (witnesses, and what standstills excuse).
package checkers

import (
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/results/checkers/costs"
	"github.com/lockquake/lockquake/results/checkers/harm"
	"github.com/lockquake/lockquake/results/checkers/keptup"
	"github.com/lockquake/lockquake/results/checkers/served"
)

// All returns all checkers in the order of a report: first what must not happen to the lock and to what it protects,
// then how well users were served, at what cost, and whether the run itself kept up.
func All() results.Checkers {
	return results.Checkers{
		// The lock, and what it protects.
		exclusionKind,
		staleWritesKind,
		harm.MinorityEffects,
		harm.LostUpdates,
		harm.LostElements,
		harm.Oversold,
		harm.DoubleBookings,
		harm.RepeatedWork,
		harm.Sums,
		tokenRegressionsKind,
		foreignReleasesKind,
		primariesKind,
		lostWritesKind,
		falseResultsKind,
		unheldReleasesKind,
		orphansKind,
		costs.Leftovers,
		costs.Growth,
		// How users are served, and at what cost.
		stuckLocksKind,
		wedgesKind,
		afterRecoveryKind,
		minorityDenialsKind,
		deafWaitsKind,
		unavailabilityKind,
		served.Throughput,
		served.Contests,
		costs.Load,
		served.Unfairness,
		lateNewsKind,
		latencyKind,
		costs.Cost,
		// The run itself.
		keptup.Generator,
		keptup.Stalls,
	}
}
