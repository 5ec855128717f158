package workloads

import (
	"context"
	"fmt"
	"time"

	"github.com/lockquake/lockquake/internal/clock"
)

// Stampede is the workload in which all users of the run ask for one lock at the same moments. It measures the cost
// of a crowd.
type Stampede struct {
	// Every is the interval between such moments.
	Every time.Duration `yaml:"every" json:"every"`
	// Hold is how long each grant is kept.
	Hold time.Duration `yaml:"hold" json:"hold"`
}

// shortestRound is the lowest useful Stampede.Every.
const shortestRound = 10 * time.Millisecond

var stampede = Kind{
	Name: "stampede",
	Doc:  "All users ask for one lock at the same moment, get it in turn, and wait for the next such moment.",
	New: func(decode func(into any) error) (Workload, error) {
		w := &Stampede{Every: time.Second, Hold: time.Millisecond}
		if err := decode(w); err != nil {
			return nil, err
		}
		if w.Every < shortestRound {
			return nil, fmt.Errorf("every is %v: want %v or more", w.Every, shortestRound)
		}
		return w, checkTimes(w.Hold, 0)
	},
}

// Locks returns one.
func (w *Stampede) Locks(int) int { return 1 }

// NeedsResource returns false: nothing is read or written.
func (w *Stampede) NeedsResource() bool { return false }

// Run joins the stampedes until ctx ends.
func (w *Stampede) Run(ctx context.Context, u User) error {
	return rounds(ctx, w.Every, func(at int64) {
		h, err := u.Acquire(ctx, 0, clock.Time(at))
		if err != nil {
			return
		}
		clock.Sleep(ctx, w.Hold)
		_ = h.Release(ctx) // recorded by the client
	})
}
