package workloads

import (
	"context"
	"fmt"
	"time"

	"github.com/lockquake/lockquake/internal/clock"
)

// Booking is the workload that books seats. Each seat has its own lock, and each user wants the first seat that is
// free as far as it knows. It shows how many seats go to two users when the lock fails.
type Booking struct {
	// Seats is the number of seats.
	Seats int `yaml:"seats" json:"seats"`
	// Hold is the time between reading a seat and booking it.
	Hold time.Duration `yaml:"hold" json:"hold"`
	// Think is how long a user waits between a release and its next acquire.
	Think time.Duration `yaml:"think" json:"think"`
}

var booking = Kind{
	Name:   "booking",
	Doc:    "Book seats, each under its own lock: read the first seat not known to be taken, wait, write the own booking.",
	Writes: Seats,
	New: func(decode func(into any) error) (Workload, error) {
		w := &Booking{Seats: 100}
		if err := decode(w); err != nil {
			return nil, err
		}
		if w.Seats < 1 || w.Seats > maxLocks {
			return nil, fmt.Errorf("seats is %d: want 1 to %d", w.Seats, maxLocks)
		}
		return w, checkTimes(w.Hold, w.Think)
	},
}

// Locks returns the number of seats.
func (w *Booking) Locks(int) int { return w.Seats }

// NeedsResource returns true: the resource stores the bookings.
func (w *Booking) NeedsResource() bool { return true }

// Run books until every seat is taken, or ctx ends.
func (w *Booking) Run(ctx context.Context, u User) error {
	seat, made := 0, int64(0)
	name := int64(u.Identity().Number+1) << 32 // booking numbers are unique in a run and never 0, which means free
	err := closed(ctx, w.Think, u, func() error {
		if seat == w.Seats {
			<-ctx.Done() // all are taken
			return nil
		}
		h, err := u.Acquire(ctx, seat, time.Time{})
		if err != nil {
			return err
		}
		switch holder, err := h.Read(ctx); {
		case err != nil: // the client records every error here
		case holder != 0:
			seat++
		default:
			clock.Sleep(ctx, w.Hold)
			made++
			_ = h.Write(ctx, name+made) // the next read of the seat shows the result
		}
		_ = h.Release(ctx)
		return nil
	})
	return err
}
