// Package users has what checkers know of users without their holds: a table of them, and which of their clients died
// or were lost.
package users

import (
	"iter"
	"maps"
	"slices"

	"github.com/lockquake/lockquake/history"
)

// Table keeps a value for each user in slices indexed by the user's number: numbers are dense, and a map would cost
// more than the sweep over the events. Memory grows with the number of users, not with the largest of their numbers.
type Table[T any] struct{ rows []row[T] }

// row has the users of one client.
type row[T any] struct {
	dense  []T        // by number
	sparse map[int]*T // users with numbers far beyond
	n      int        // number of users that were not in dense at their first use
}

// At returns the place of a user. It stays valid until another user of the same client is looked up.
func (b *Table[T]) At(u history.User) *T {
	c, i := u.Client(), u.Index()
	if c < len(b.rows) && i < len(b.rows[c].dense) {
		return &b.rows[c].dense[i]
	}
	return b.beyond(c, i)
}

// leastDense is the initial number of dense places of a client.
const leastDense = 8

// beyond makes a place. The dense part at least doubles, but never has more than four places for each user.
func (b *Table[T]) beyond(c, i int) *T {
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

// Client returns the numbers and places of the users of one client, in their order.
func (b *Table[T]) Client(c int) iter.Seq2[int, *T] {
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

// All returns all users and their places, in their order.
func (b *Table[T]) All() iter.Seq2[history.User, *T] {
	return func(yield func(history.User, *T) bool) {
		for c := range b.rows {
			for i, p := range b.Client(c) {
				if !yield(history.MakeUser(c, i), p) {
					return
				}
			}
		}
	}
}
