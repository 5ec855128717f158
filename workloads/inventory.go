package workloads

import (
	"context"
	"fmt"

	"github.com/lockquake/lockquake/internal/clock"
)

// Inventory is the workload that sells a limited stock: read the number of units sold, and if one is left, wait and
// sell it. It shows how many units are oversold when the lock fails.
type Inventory struct {
	Cycles `yaml:",inline"`
	// Stock is the number of units of each article.
	Stock int64 `yaml:"stock" json:"stock"`
}

// TermStock is the number of units under each lock.
const TermStock = "stock"

var inventory = Kind{
	Name:       "inventory",
	Doc:        "Sell a limited stock: read the number of sold units and, if one is left, wait and write one more.",
	Increments: true,
	Writes:     Sales,
	New: func(decode func(into any) error) (Workload, error) {
		w := &Inventory{Cycles: Cycles{Count: 1}, Stock: 100}
		if err := decode(w); err != nil {
			return nil, err
		}
		if w.Stock < 1 {
			return nil, fmt.Errorf("stock is %d: want 1 unit or more", w.Stock)
		}
		return w, w.check()
	},
}

// NeedsResource returns true: the resource stores the stock.
func (w *Inventory) NeedsResource() bool { return true }

// Terms returns the stock.
func (w *Inventory) Terms() map[string]int64 { return map[string]int64{TermStock: w.Stock} }

// Run sells until ctx ends. It keeps looking after everything is sold.
func (w *Inventory) Run(ctx context.Context, u User) error {
	return w.run(ctx, u, func(h Hold) {
		if sold, err := h.Read(ctx); err == nil && sold < w.Stock {
			clock.Sleep(ctx, w.Hold)
			_ = h.Write(ctx, sold+1)
		}
	})
}
