package chaos

import (
	"errors"
	"strings"
	"sync"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/clock"
)

// seen makes a receipt.
func seen(status history.ReceiptStatus, at int64, evidence string) history.Receipt {
	if at == 0 {
		at = clock.Now()
	}
	return history.Receipt{Status: status, Evidence: evidence, Time: at}
}

// badness orders the answers of a receipt.
var badness = map[history.ReceiptStatus]int{history.Installed: 0, history.Indeterminate: 1, history.NotInstalled: 2}

// joined is the receipt for several targets: as good as the worst, and as late as the last.
func joined(receipts []history.Receipt) history.Receipt {
	out := history.Receipt{Status: history.Installed}
	var evidence []string
	for _, r := range receipts {
		if badness[r.Status] > badness[out.Status] {
			out.Status = r.Status
		}
		out.Time = max(out.Time, r.Time)
		evidence = append(evidence, r.Evidence)
	}
	if len(receipts) == 0 {
		return seen(history.NotInstalled, 0, "no target")
	}
	out.Evidence = strings.Join(evidence, "; ")
	return out
}

// onEach does the same to every target at once, and joins what was seen. An error makes that target's receipt
// not-installed, with the error as evidence.
func onEach[T Node](targets []T, act func(T) (history.Receipt, error)) (history.Receipt, error) {
	receipts, errs := make([]history.Receipt, len(targets)), make([]error, len(targets))
	var all sync.WaitGroup
	for i, n := range targets {
		all.Go(func() {
			r, err := act(n)
			if err != nil {
				r = seen(history.NotInstalled, r.Time, strings.TrimPrefix(r.Evidence+"; "+n.Name()+": "+err.Error(), "; "))
			}
			receipts[i], errs[i] = r, err
		})
	}
	all.Wait()
	return joined(receipts), errors.Join(errs...)
}

// capable returns the targets as what a fault needs; a target that is not is an Unavailable error, before anything was
// done to any of them.
func capable[T any](on []Node, what Capability) ([]T, error) {
	var out []T
	for _, n := range on {
		t, ok := n.(T)
		if !ok {
			return nil, Unavailable{What: string(what), Reason: n.Name() + " is a node that it cannot be done to"}
		}
		out = append(out, t)
	}
	return out, nil
}

// nothingDone is the receipt beside an error that came before anything was done.
func nothingDone(err error) history.Receipt {
	return seen(history.NotInstalled, 0, "nothing was done: "+err.Error())
}
