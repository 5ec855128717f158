package users

import (
	"cmp"
	"slices"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
)

// LostClient is a client whose end was not observed.
type LostClient struct {
	Client int
	Last   int64 // ns: its last event
}

// LostClients returns the clients whose end was not observed, those with the earliest last event first.
func LostClients(run results.Run) []LostClient {
	var cs []LostClient
	for _, l := range run.Lost {
		if c, ok := history.ClientOf(l.Name); ok && l.Ended == "" {
			cs = append(cs, LostClient{c, l.Last})
		}
	}
	slices.SortStableFunc(cs, func(a, b LostClient) int { return cmp.Compare(a.Last, b.Last) })
	return cs
}

// AllHeard returns until when all users' holds are known. A client whose end was not observed may have been granted
// any lock after its last event. Forever without such a client.
func AllHeard(run results.Run) int64 {
	for _, l := range LostClients(run) {
		return l.Last
	}
	return results.Forever
}

// DeadClients returns the indexes of the clients that were killed, or are lost.
func DeadClients(run results.Run) []int {
	var cs []int
	for _, name := range run.Dead {
		if c, ok := history.ClientOf(name); ok {
			cs = append(cs, c)
		}
	}
	slices.Sort(cs)
	return cs
}
