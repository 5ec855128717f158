package results

import (
	"maps"
	"slices"
)

// Checkers returns the list of all checkers, in the order in which a report shows them.
func Checkers() []CheckerKind { return slices.Concat(ofHarm(), ofService()) }

// ofHarm lists the checkers of what must not happen: to the lock, and to what it protects.
func ofHarm() []CheckerKind {
	return []CheckerKind{
		{
			Name: "exclusion", New: newExclusion,
			Doc:    "No two conflicting holds of one lock overlap: while both are entitled (double grant), or after a validity ran out (overlapping hold).",
			Counts: []string{"double_grants", "overlapping_holds", "possible_overlaps"},
		},
		{
			Name: "stale_writes", New: newStaleWrites,
			Doc:    "The resource applies no write of a hold after a later, conflicting hold has read or written there; a refused one is a fence save.",
			Counts: []string{"stale_writes", "fence_saves", "unordered_effects", "false_refusals"},
		},
		{
			Name: "minority_effects", New: newMinorityEffects,
			Doc:    "Writes that some replicas of a replicated resource applied, but no majority: they do not count as effects.",
			Counts: []string{"minority_effects"},
		},
		{
			Name: "lost_updates", New: newLostUpdates,
			Doc:    "Every acknowledged effect is there at the end.",
			Counts: []string{"lost_updates"},
		},
		{
			Name: "lost_elements", New: newLostElements,
			Doc:    "Every element that was put into a set, and acknowledged, is in it at the end.",
			Counts: []string{"lost_elements"}, Measures: []string{"acknowledged_elements", "lost_elements_share"},
		},
		{
			Name: "oversold", New: newOversold,
			Doc:    "No more units of a stock are sold than there were.",
			Counts: []string{"units_oversold"},
		},
		{
			Name: "double_bookings", New: newDoubleBookings,
			Doc:    "Of all bookings of a seat that were acknowledged, the one that stands at the end is the only one.",
			Counts: []string{"double_bookings"},
		},
		{
			Name: "sums", New: newSums,
			Doc:    "Transfers make no money and lose none: every account, and all together, hold what was acknowledged.",
			Counts: []string{"accounts_off", "sum_off"},
		},
		{
			Name: "token_regressions", New: newTokenRegressions,
			Doc:    "A later grant of a lock has a higher fencing token.",
			Counts: []string{"token_regressions"},
		},
		{
			Name: "foreign_releases", New: newForeignReleases,
			Doc:    "No release takes away the grant of another user.",
			Counts: []string{"foreign_releases"},
		},
		{
			Name: "primaries", New: newPrimaries,
			Doc:      "At no time do two servers take writes where one lock is kept; where they were asked all the time.",
			Measures: []string{"both_primaries_served_ms"},
		},
		{
			Name: "lost_writes", New: newLostWrites,
			Doc:    "A grant that a server was seen to have is there until its time is over, or somebody releases the lock; where servers were asked at the end.",
			Counts: []string{"acknowledged_writes_lost"},
		},
	}
}

// ofService lists the checkers of how well users were served, at what cost, and whether the run itself kept up.
func ofService() []CheckerKind {
	return []CheckerKind{
		{
			Name: "stuck_locks", New: newStuckLocks,
			Doc:    "When users ask for a lock that nobody alive has in hand, somebody gets it within its recovery bound.",
			Counts: []string{"stuck_locks"}, Measures: []string{"stuck_ms_max", "held_beyond_validity_ms"},
		},
		{
			Name: "unavailability", New: newUnavailability,
			Doc:      "How long nobody got a lock that somebody asked for, through a fault and until recovery; for each fault too.",
			Measures: []string{"unavailability_ms_max"},
		},
		{
			Name: "throughput", New: newThroughput,
			Doc:      "How many grants a second the clients got.",
			Measures: []string{"throughput_per_s"},
		},
		{
			Name: "load", New: newLoad,
			Doc:      "How many reads and writes reached the resource, served or refused, for each write that was acknowledged.",
			Measures: []string{"accesses_per_write"},
		},
		{
			Name: "unfairness", New: newUnfairness,
			Doc:    "Who asks for a lock gets it, and about as often as the others.",
			Counts: []string{"starved_users"}, Measures: []string{"jain_index", "longest_wait_ms"},
		},
		{
			Name: "latency", New: newLatency,
			Doc:      "How long acquire, hold, release and handoff took, in the whole run and before, during and after each fault.",
			Measures: latencyMeasures(),
		},
		{
			Name: "cost", New: newCost,
			Doc:      "What a handoff and a grant cost: how many waiters were woken, and what the servers were asked, for each.",
			Measures: []string{"wakeups_per_handoff", "requests_per_handoff", "requests_per_grant"},
		},
		{
			Name: "generator", New: newGenerator,
			Doc:      "Whether the clients kept up with what they were asked to do: arrivals that nobody served, lag, share of the machine's CPU.",
			Measures: []string{"client_cpu_share"},
		},
		{
			Name: "stalls", New: newStalls,
			Doc:    "No process of lockquake stood still for longer than half of the ttl unless a fault asked for it; otherwise a zero proves nothing.",
			Counts: []string{"own_stalls"}, Measures: []string{"own_stall_ms_max"},
		},
	}
}

func latencyMeasures() []string {
	var names []string
	for _, op := range opNames {
		names = append(names, op+"_p50_ms", op+"_p99_ms", op+"_max_ms")
	}
	return names
}

// Names returns every count and measure that a run is judged by, sorted. There is one more measure for each fault:
// unavailability_ms_NAME_ID.
func Names() []string {
	set := map[string]bool{}
	for _, k := range Checkers() {
		for _, name := range slices.Concat(k.Counts, k.Measures) {
			set[name] = true
		}
	}
	return slices.Sorted(maps.Keys(set))
}
