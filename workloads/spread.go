package workloads

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/lockquake/lockquake/internal/clock"
)

// The ways in which Spread chooses a lock.
const (
	PickUniform = "uniform"
	PickZipf    = "zipf"
)

// Spread is the workload over many locks, with equal or skewed popularity. It measures the cost of many locks.
type Spread struct {
	// Count is the number of locks.
	Count int `yaml:"locks" json:"locks"`
	// Pick is how a cycle chooses a lock: "uniform" or "zipf" (lock k is taken with a probability proportional to
	// (k+1) to the power of -Skew).
	Pick string `yaml:"pick" json:"pick"`
	// Skew is the exponent of zipf, above 1.
	Skew float64 `yaml:"skew" json:"skew"`
	// Hold is how long each grant is kept.
	Hold time.Duration `yaml:"hold" json:"hold"`
	// Think is how long a user waits between a release and its next acquire.
	Think time.Duration `yaml:"think" json:"think"`
}

var spread = Kind{
	Name: "spread",
	Doc:  "Acquire, hold and release one of many locks, all equally popular (uniform) or a few much more than the others (zipf).",
	New: func(decode func(into any) error) (Workload, error) {
		w := &Spread{Count: 1000, Pick: PickUniform, Skew: 1.1}
		if err := decode(w); err != nil {
			return nil, err
		}
		if err := checkLocks(w.Count); err != nil {
			return nil, err
		}
		switch {
		case w.Pick != PickUniform && w.Pick != PickZipf:
			return nil, fmt.Errorf("pick is %q: want %s or %s", w.Pick, PickUniform, PickZipf)
		case !(w.Skew > 1 && w.Skew <= 10):
			return nil, fmt.Errorf("skew is %v: want an exponent above 1 and at most 10", w.Skew)
		}
		return w, checkTimes(w.Hold, w.Think)
	},
}

// Locks returns the number of locks.
func (w *Spread) Locks(int) int { return w.Count }

// NeedsResource returns false: nothing is read or written.
func (w *Spread) NeedsResource() bool { return false }

// Run takes and releases locks until ctx ends.
func (w *Spread) Run(ctx context.Context, u User) error {
	choose := anyOf(u, w.Count)
	if w.Pick == PickZipf {
		z := rand.NewZipf(u.Random(), w.Skew, 1, uint64(w.Count-1))
		choose = func() int { return int(z.Uint64()) }
	}
	return inside(ctx, w.Think, u, choose, func(Hold) { clock.Sleep(ctx, w.Hold) })
}
