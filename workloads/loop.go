package workloads

import (
	"context"
	"fmt"
	"time"

	"github.com/lockquake/lockquake/internal/clock"
)

// afterFailure is the mean pause of a user of a closed loop after a failed acquire. Otherwise a service that refuses
// at once would be asked without a pause.
const afterFailure = 10 * time.Millisecond

// maxLocks is the number of locks that an event can name.
const maxLocks = 1 << 16

// closed runs cycles one after the other until ctx ends. A cycle returns an error when it did not get the lock.
func closed(ctx context.Context, think time.Duration, u User, cycle func() error) error {
	for ctx.Err() == nil {
		if err := cycle(); err != nil {
			clock.Sleep(ctx, afterFailure/2+time.Duration(u.Random().Int64N(int64(afterFailure))))
		}
		clock.Sleep(ctx, think)
	}
	return nil
}

// inside runs closed cycles: each takes the lock that choose returns, does its work under it, and releases it. The
// client records errors there.
func inside(ctx context.Context, think time.Duration, u User, choose func() int, do func(Hold)) error {
	return closed(ctx, think, u, func() error {
		h, err := u.Acquire(ctx, choose(), time.Time{})
		if err != nil {
			return err
		}
		do(h)
		_ = h.Release(ctx)
		return nil
	})
}

// rounds calls do at the same moments for all users until ctx ends: multiples of every on the run's clock, which all
// processes share. A user that is still busy at such a moment misses it.
func rounds(ctx context.Context, every time.Duration, do func(at int64)) error {
	for ctx.Err() == nil {
		at := (clock.Now()/int64(every) + 1) * int64(every)
		clock.Sleep(ctx, time.Duration(at-clock.Now()))
		if ctx.Err() == nil {
			do(at)
		}
	}
	return nil
}

// anyOf returns a choice among n locks.
func anyOf(u User, n int) func() int { return func() int { return pick(u, n) } }

// pick chooses one of n locks.
func pick(u User, n int) int {
	if n == 1 {
		return 0
	}
	return u.Random().IntN(n)
}

// Cycles has the keys of workloads whose users take one of several locks, hold it and release it, again and again.
type Cycles struct {
	// Count is the number of locks; each cycle takes one at random.
	Count int `yaml:"locks" json:"locks"`
	// Hold is how long a cycle keeps its lock between its read and its write.
	Hold time.Duration `yaml:"hold" json:"hold"`
	// Think is how long a user waits between a release and its next acquire.
	Think time.Duration `yaml:"think" json:"think"`
}

// Locks returns the number of locks.
func (c Cycles) Locks(int) int { return c.Count }

func (c Cycles) check() error {
	if err := checkLocks(c.Count); err != nil {
		return err
	}
	return checkTimes(c.Hold, c.Think)
}

// run calls do in each cycle until ctx ends.
func (c Cycles) run(ctx context.Context, u User, do func(Hold)) error {
	return inside(ctx, c.Think, u, anyOf(u, c.Count), do)
}

func checkLocks(n int) error {
	if n < 1 || n > maxLocks {
		return fmt.Errorf("locks is %d: want 1 to %d", n, maxLocks)
	}
	return nil
}

func checkTimes(hold, think time.Duration) error {
	if hold < 0 {
		return fmt.Errorf("hold is %v: want a duration of 0 or more, such as 50ms", hold)
	}
	if think < 0 {
		return fmt.Errorf("think is %v: want a duration of 0 or more, such as 10ms", think)
	}
	return nil
}
