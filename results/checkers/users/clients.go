package users

import (
	"cmp"
	"slices"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
)

// LostClient is a client whose end nobody saw.
type LostClient struct {
	Client int
	Last   int64 // ns: when it was heard last
}

// LostClients returns the clients whose end nobody saw, those that were heard for the shortest time first.
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

// AllHeard is until when it is known what all users have in hand: from the last event of a client on whose end nobody
// saw, it may have been granted any lock. Forever where there is none.
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
