package workloads

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockquake/lockquake/internal/clock"
)

// Each workload fulfils the promise of its name under a service that excludes (here: a single user).
func TestWorkloadsKeepTheirPromise(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, wl := live(t, "inventory", "{stock: 7, hold: 1ms, think: 1ms}", 1, 0, time.Second, nil)
		if w.values[0] != 7 || len(w.begun) < 100 || wl.(Termed).Terms()[TermStock] != 7 {
			t.Errorf("%d of 7 units are sold after %d looks", w.values[0], len(w.begun))
		}

		w, _ = live(t, "booking", "{seats: 9, hold: 1ms}", 3, 0, time.Second, nil)
		if len(w.values) != 9 || len(w.locks) != 9 {
			t.Errorf("%d of 9 seats are booked", len(w.values))
		}
		for seat, holder := range w.values {
			if holder>>32 < 1 || holder>>32 > 3 {
				t.Errorf("seat %d belongs to %d", seat, holder)
			}
		}

		w, _ = live(t, "balance", "{accounts: 3, amount: 5, hold: 1ms}", 1, 0, time.Second, nil)
		sum, moved := int64(0), false
		for _, v := range w.values {
			sum += v
			moved = moved || v != 0
		}
		if sum != 0 || !moved || len(w.locks) != 3 {
			t.Errorf("accounts hold %v", w.values)
		}

		w, _ = live(t, "guarded-set", "{hold: 10ms, spread: true}", 1, 0, time.Second, nil)
		if n := len(w.begun); w.values[0] != 1<<32+int64(n) || n < 120 {
			t.Errorf("the last of %d elements is %x", n, w.values[0])
		}

		w, wl = live(t, "hold-renew", "{hold: 300ms, touch: 100ms}", 1, 0, time.Second, nil)
		if len(w.begun) != 4 || w.values[0] < 9 || !wl.(Renewing).Renews() {
			t.Errorf("%d holds of 300 ms in a second, with %d uses", len(w.begun), w.values[0])
		}

		w, _ = live(t, "spread", "{locks: 100, pick: zipf, skew: 1.5, hold: 1ms}", 1, 0, 2*time.Second, nil)
		uniform, _ := live(t, "spread", "{locks: 100, hold: 1ms}", 1, 0, 2*time.Second, nil)
		if w.locks[0] < 4*uniform.locks[0] || len(uniform.locks) < 95 || len(w.locks) < 10 {
			t.Errorf("the first lock was taken %d times of 2000 by zipf and %d by chance; %d and %d locks were used",
				w.locks[0], uniform.locks[0], len(w.locks), len(uniform.locks))
		}
	})
}

// All users acquire at the same moments: multiples of the period on the run's clock.
func TestStampedeComesTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const users, every = 8, 50 * time.Millisecond
		w, _ := live(t, "stampede", "{every: 50ms}", users, 0, 510*time.Millisecond, nil)
		rounds := map[int64]int{}
		for i, at := range w.intended {
			if clock.Of(at)%int64(every) != 0 || !w.begun[i].Equal(at) {
				t.Errorf("a user was meant to come at %v, a multiple of %v, and came %v later", clock.Of(at), every, w.begun[i].Sub(at))
			}
			rounds[clock.Of(at)]++
		}
		for at, n := range rounds {
			if n != users {
				t.Errorf("%d of %d users came at %v", n, users, at)
			}
		}
		if len(rounds) != 10 {
			t.Errorf("%d rounds of %v in 510ms", len(rounds), every)
		}
	})
}
