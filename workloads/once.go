package workloads

import (
	"context"
	"fmt"
	"time"

	"github.com/lockquake/lockquake/internal/clock"
)

// Once is the workload of work that should be done once, such as a mail, a report, or a value for a cache. At each
// moment all users of the run want the same piece of work done. A user that gets its lock and finds the work not done
// does it and records that.
type Once struct {
	// Every is the interval between such moments.
	Every time.Duration `yaml:"every" json:"every"`
	// Hold is how long the work takes.
	Hold time.Duration `yaml:"hold" json:"hold"`
	// Jobs is the number of locks. The pieces of work take them in turn.
	Jobs int `yaml:"jobs" json:"jobs"`
}

var once = Kind{
	Name:   "once",
	Doc:    "All users want the same piece of work at the same moment: each gets the lock in turn, does the work unless it is done, and writes that it is done.",
	Writes: Work,
	New: func(decode func(into any) error) (Workload, error) {
		w := &Once{Every: 100 * time.Millisecond, Hold: 5 * time.Millisecond, Jobs: 1}
		if err := decode(w); err != nil {
			return nil, err
		}
		if w.Every < shortestRound {
			return nil, fmt.Errorf("every is %v: want %v or more", w.Every, shortestRound)
		}
		if w.Jobs < 1 || w.Jobs > maxLocks {
			return nil, fmt.Errorf("jobs is %d: want 1 to %d", w.Jobs, maxLocks)
		}
		return w, checkTimes(w.Hold, 0)
	},
}

// Locks returns the number of jobs.
func (w *Once) Locks(int) int { return w.Jobs }

// NeedsResource returns true: the resource stores which work is done.
func (w *Once) NeedsResource() bool { return true }

// Run works until ctx ends. A piece of work is numbered by its moment.
func (w *Once) Run(ctx context.Context, u User) error {
	return rounds(ctx, w.Every, func(at int64) {
		number := at / int64(w.Every)
		h, err := u.Acquire(ctx, int(number%int64(w.Jobs)), clock.Time(at))
		if err != nil {
			return
		}
		if done, err := h.Read(ctx); err == nil && done < number {
			clock.Sleep(ctx, w.Hold)
			_ = h.Write(ctx, number) // recorded by the client
		}
		_ = h.Release(ctx)
	})
}
