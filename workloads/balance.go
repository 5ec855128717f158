package workloads

import (
	"context"
	"fmt"
	"time"

	"github.com/lockquake/lockquake/internal/clock"
)

// Balance is the workload that moves money between accounts, each under its own lock. Money only moves, so the sum
// must stay 0.
type Balance struct {
	// Accounts is the number of accounts.
	Accounts int `yaml:"accounts" json:"accounts"`
	// Amount is the maximum of one transfer; each transfer draws from 1 to this.
	Amount int64 `yaml:"amount" json:"amount"`
	// Hold is the time between reading the two accounts and the transfer.
	Hold time.Duration `yaml:"hold" json:"hold"`
	// Think is how long a user waits between a release and its next acquire.
	Think time.Duration `yaml:"think" json:"think"`
}

var balance = Kind{
	Name:   "balance",
	Doc:    "Move money between two accounts, each under its own lock: read both, wait, write both; the sum must stay.",
	Writes: Transfers,
	New: func(decode func(into any) error) (Workload, error) {
		w := &Balance{Accounts: 10, Amount: 100}
		if err := decode(w); err != nil {
			return nil, err
		}
		switch {
		case w.Accounts < 2 || w.Accounts > maxLocks:
			return nil, fmt.Errorf("accounts is %d: want 2 to %d", w.Accounts, maxLocks)
		case w.Amount < 1 || w.Amount > 1<<32:
			return nil, fmt.Errorf("amount is %d: want 1 to %d", w.Amount, int64(1)<<32)
		}
		return w, checkTimes(w.Hold, w.Think)
	},
}

// Locks returns the number of accounts.
func (w *Balance) Locks(int) int { return w.Accounts }

// NeedsResource returns true: the resource stores the accounts.
func (w *Balance) NeedsResource() bool { return true }

// Run transfers until ctx ends. A transfer that has begun is finished.
func (w *Balance) Run(ctx context.Context, u User) error {
	return closed(ctx, w.Think, u, func() error {
		from := u.Random().IntN(w.Accounts)
		to := (from + 1 + u.Random().IntN(w.Accounts-1)) % w.Accounts
		amount := 1 + u.Random().Int64N(w.Amount)
		low, high := from, to
		if low > high {
			low, high, amount = to, from, -amount
		}
		first, err := u.Acquire(ctx, low, time.Time{}) // the lower number first: prevents deadlocks
		if err != nil {
			return err
		}
		second, err := u.Acquire(ctx, high, time.Time{})
		if err == nil {
			w.transfer(ctx, first, second, amount)
			_ = second.Release(ctx)
		}
		_ = first.Release(ctx)
		return err
	})
}

// transfer moves an amount from the first account to the second. The client records errors. Without an acknowledged
// first write the second is not made.
func (w *Balance) transfer(ctx context.Context, first, second Hold, amount int64) {
	a, err := first.Read(ctx)
	if err != nil {
		return
	}
	b, err := second.Read(ctx)
	if err != nil {
		return
	}
	clock.Sleep(ctx, w.Hold)
	if first.Write(ctx, a-amount) == nil {
		_ = second.Write(ctx, b+amount)
	}
}
