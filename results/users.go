package results

import (
	"fmt"
	"slices"

	"github.com/lockquake/lockquake/history"
)

// byUser is something for each user: a table, because users are numbered densely and a map costs more than the sweep.
type byUser[T any] struct{ rows [][]T }

// at returns the place of a user. It stays valid until a user with a higher number of the same client is asked for.
func (b *byUser[T]) at(u history.User) *T {
	c, i := u.Client(), u.Index()
	if c >= len(b.rows) {
		b.rows = append(b.rows, make([][]T, c+1-len(b.rows))...)
	}
	if i >= len(b.rows[c]) {
		b.rows[c] = append(b.rows[c], make([]T, i+1-len(b.rows[c]))...)
	}
	return &b.rows[c][i]
}

// client returns the places of all users of one client that were asked for.
func (b *byUser[T]) client(c int) []T {
	if c >= len(b.rows) {
		return nil
	}
	return b.rows[c]
}

// clientName is the name of the node with that client index.
func clientName(c int) string { return fmt.Sprintf("client-%d", c+1) }

// clientIndex is the inverse of clientName; ok is false for a node that is no client.
func clientIndex(name string) (c int, ok bool) {
	if _, err := fmt.Sscanf(name, "client-%d", &c); err != nil || c < 1 || clientName(c-1) != name {
		return 0, false
	}
	return c - 1, true
}

// deadClients returns the indexes of the clients that were killed.
func deadClients(run Run) []int {
	var cs []int
	for _, name := range run.Dead {
		if c, ok := clientIndex(name); ok {
			cs = append(cs, c)
		}
	}
	slices.Sort(cs)
	return cs
}
