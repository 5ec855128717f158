package workloads

import (
	"context"
	"fmt"
	"time"

	"github.com/lockquake/lockquake/internal/clock"
)

// Inventory is the workload that sells a limited stock: look how many units are sold, and if there is one left, wait
// and sell it. It shows how many units too many are sold where the lock fails.
type Inventory struct {
	// Count is the number of locks, each of which protects the stock of one article; each cycle takes one at random.
	Count int `yaml:"locks" json:"locks"`
	// Stock is how many units there are of each article.
	Stock int64 `yaml:"stock" json:"stock"`
	// Hold is the time between the look and the sale.
	Hold time.Duration `yaml:"hold" json:"hold"`
	// Think is how long a user waits between a release and its next acquire.
	Think time.Duration `yaml:"think" json:"think"`
}

// TermStock is the units there are under each lock.
const TermStock = "stock"

var inventory = Kind{
	Name:       "inventory",
	Doc:        "Sell a limited stock: read how many units are sold, and while there is one left, wait and write one more.",
	Increments: true,
	Writes:     Sales,
	New: func(decode func(into any) error) (Workload, error) {
		w := &Inventory{Count: 1, Stock: 100}
		if err := decode(w); err != nil {
			return nil, err
		}
		if w.Stock < 1 {
			return nil, fmt.Errorf("stock is %d: want 1 unit or more", w.Stock)
		}
		if err := checkLocks(w.Count); err != nil {
			return nil, err
		}
		return w, checkTimes(w.Hold, w.Think)
	},
}

// Locks returns the number of articles.
func (w *Inventory) Locks(int) int { return w.Count }

// NeedsResource returns true: the stock is there.
func (w *Inventory) NeedsResource() bool { return true }

// Terms names the stock.
func (w *Inventory) Terms() map[string]int64 { return map[string]int64{TermStock: w.Stock} }

// Run sells until ctx ends. It goes on looking when everything is sold.
func (w *Inventory) Run(ctx context.Context, u User) error {
	return inside(ctx, w.Think, u, anyOf(u, w.Count), func(h Hold) {
		if sold, err := h.Read(ctx); err == nil && sold < w.Stock {
			clock.Sleep(ctx, w.Hold)
			_ = h.Write(ctx, sold+1)
		}
	})
}
