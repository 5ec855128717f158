package users

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/lockquake/lockquake/history"
)

// places counts the places that a table has made.
func places[T any](b *Table[T]) (n int) {
	for _, r := range b.rows {
		n += len(r.dense) + len(r.sparse)
	}
	return n
}

// TestUsersTakeRoomByTheirNumber uses histories with users in any order and of any number.
func TestUsersTakeRoomByTheirNumber(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for name, users := range map[string]func(i int) history.User{
		"in order":             func(i int) history.User { return history.MakeUser(i%4, i/4) },
		"backwards":            func(i int) history.User { return history.MakeUser(2, 9999-i) },
		"the last ones":        func(i int) history.User { return history.MakeUser(i%50, 65535-i/50) },
		"each twice as far":    func(i int) history.User { return history.MakeUser(i/16, 1<<(i%16)) },
		"four times as far":    func(i int) history.User { return history.MakeUser(i/8, 1<<(i%8*2)) },
		"anyone":               func(int) history.User { return history.User(random.Uint32N(1 << 24)) },
		"anyone of one client": func(int) history.User { return history.MakeUser(3, random.IntN(1<<16)) },
	} {
		t.Run(name, func(t *testing.T) {
			var table Table[int]
			want := map[history.User]int{}
			for i := range 10_000 {
				u := users(i)
				*table.At(u) += i
				want[u] += i
			}
			got := map[history.User]int{}
			var order []history.User
			for u, n := range table.All() {
				if *n != 0 || want[u] != 0 {
					got[u] = *n
					order = append(order, u)
				}
			}
			maps.DeleteFunc(want, func(u history.User, n int) bool { return n == 0 && got[u] == 0 })
			maps.DeleteFunc(got, func(_ history.User, n int) bool { return n == 0 })
			if !maps.Equal(got, want) || !slices.IsSorted(order) {
				t.Errorf("%d users of %d, in order %t", len(got), len(want), slices.IsSorted(order))
			}
			clients, most, far := len(table.rows), 0, 0
			for u := range want {
				most = max(most, u.Client()+1)
			}
			for _, r := range table.rows {
				far += len(r.sparse)
			}
			if clients != most {
				t.Errorf("rows for %d clients, want %d", clients, most)
			}
			if name == "in order" && 4*far > len(want) {
				t.Errorf("%d of %d users without gaps are in maps", far, len(want))
			}
			if n := places(&table); n > 5*len(want)+leastDense*min(clients, len(want)) {
				t.Errorf("%d places for %d users of %d clients", n, len(want), clients)
			}
		})
	}
}
