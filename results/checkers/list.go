// Package checkers is the list of all checkers: one file for each, beside the files that several checkers share,
// such as holds and asks. Those that look only at what the lock protects are in harm.
package checkers

import (
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/results/checkers/harm"
)

// All returns the list of all checkers in the order of a report: first what must not happen to the lock and to what
// it protects, then how well users were served, at what cost, and whether the run itself kept up.
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
		orphansKind,
		leftoversKind,
		// How users are served, and at what cost.
		stuckLocksKind,
		wedgesKind,
		afterRecoveryKind,
		minorityDenialsKind,
		deafWaitsKind,
		unavailabilityKind,
		throughputKind,
		contestsKind,
		loadKind,
		unfairnessKind,
		lateNewsKind,
		latencyKind,
		costKind,
		// The run itself.
		generatorKind,
		stallsKind,
	}
}
