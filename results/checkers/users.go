package checkers

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
)

// byUser keeps something for each user in a table, because users are numbered densely and a map costs more than the
// sweep. Its size follows the number of users, not the largest of their numbers.
type byUser[T any] struct{ rows []row[T] }

// row is the users of one client.
type row[T any] struct {
	dense  []T        // by number
	sparse map[int]*T // whose numbers lie far beyond
	n      int        // how many users were not among dense when they were asked for first
}

// at returns the place of a user. It stays valid until another user of the same client is asked for.
func (b *byUser[T]) at(u history.User) *T {
	c, i := u.Client(), u.Index()
	if c < len(b.rows) && i < len(b.rows[c].dense) {
		return &b.rows[c].dense[i]
	}
	return b.beyond(c, i)
}

// leastDense is how many users of a client have a place from the first one on.
const leastDense = 8

// beyond makes a place. The dense part at least doubles, but never has more than four places for each user.
func (b *byUser[T]) beyond(c, i int) *T {
	if c >= len(b.rows) {
		b.rows = append(b.rows, make([]row[T], c+1-len(b.rows))...)
	}
	r := &b.rows[c]
	if p := r.sparse[i]; p != nil {
		return p
	}
	r.n++
	size := max(leastDense, 2*len(r.dense))
	for size <= i {
		size *= 2
	}
	if size > leastDense+4*r.n {
		if r.sparse == nil {
			r.sparse = map[int]*T{}
		}
		r.sparse[i] = new(T)
		return r.sparse[i]
	}
	r.dense = append(r.dense, make([]T, size-len(r.dense))...)
	for k, p := range r.sparse {
		if k < size {
			r.dense[k] = *p
			delete(r.sparse, k)
		}
	}
	return &r.dense[i]
}

// client returns the numbers and places of the users of one client, in their order.
func (b *byUser[T]) client(c int) iter.Seq2[int, *T] {
	return func(yield func(int, *T) bool) {
		if c >= len(b.rows) {
			return
		}
		r := &b.rows[c]
		for i := range r.dense {
			if !yield(i, &r.dense[i]) {
				return
			}
		}
		for _, i := range slices.Sorted(maps.Keys(r.sparse)) {
			if !yield(i, r.sparse[i]) {
				return
			}
		}
	}
}

// all returns all users and their places, in their order.
func (b *byUser[T]) all() iter.Seq2[history.User, *T] {
	return func(yield func(history.User, *T) bool) {
		for c := range b.rows {
			for i, p := range b.client(c) {
				if !yield(history.MakeUser(c, i), p) {
					return
				}
			}
		}
	}
}

// clientName is the name of the node with that client index.
func clientName(c int) string { return fmt.Sprintf("client-%d", c+1) }

// lostClient is a client whose end nobody saw.
type lostClient struct {
	client int
	last   int64 // ns: when it was heard last
}

// lostClients returns the clients whose end nobody saw, those that were heard for the shortest time first.
func lostClients(run results.Run) []lostClient {
	var cs []lostClient
	for _, l := range run.Lost {
		if c, ok := history.ClientOf(l.Name); ok && l.Ended == "" {
			cs = append(cs, lostClient{c, l.Last})
		}
	}
	slices.SortStableFunc(cs, func(a, b lostClient) int { return cmp.Compare(a.last, b.last) })
	return cs
}

// allHeard is until when it is known what all users have in hand: from the last event of a client on whose end nobody
// saw, it may have been granted any lock. Forever where there is none.
func allHeard(run results.Run) int64 {
	for _, l := range lostClients(run) {
		return l.last
	}
	return results.Forever
}

// deadClients returns the indexes of the clients that were killed, or are lost.
func deadClients(run results.Run) []int {
	var cs []int
	for _, name := range run.Dead {
		if c, ok := history.ClientOf(name); ok {
			cs = append(cs, c)
		}
	}
	slices.Sort(cs)
	return cs
}
