// Receipts: the engine's observations of a fault are checked against the history, which has the last word.
//
// A fault aimed at a holder bit only if that grant was in hand when the target was observed to stop: granted before,
// and neither released nor lost before. An event stamped before the stop may arrive after the heal. Example: the stop
// was observed at 5.000 s, and after the heal a release invoke stamped 4.998 s arrives. The holder had let go before
// it was stopped, so the fault did not bite. If holder and agent have separate clocks, and both moments lie within
// the clock errors, the order is unknown: the receipt is indeterminate.
//
// It cannot check receipts of faults that were not aimed at a grant.

package results

import (
	"fmt"
	"slices"

	"github.com/lockquake/lockquake/history"
)

type receipts struct {
	run    Run
	clocks Clocks
	seen   map[holdKey]*aimed
}

type holdKey struct {
	user  history.User
	grant uint32
}

// aimed is the history of a grant that a fault was aimed at.
type aimed struct{ ok, over history.Event }

func newReceipts(run Run) *receipts {
	r := &receipts{run: run, clocks: run.Clocks(), seen: map[holdKey]*aimed{}}
	for _, f := range run.Faults {
		if f.Grant != 0 && f.User != nil {
			r.seen[holdKey{*f.User, f.Grant}] = &aimed{}
		}
	}
	return r
}

func (r *receipts) observe(e *history.Event) {
	if len(r.seen) == 0 {
		return
	}
	switch {
	case e.Kind == history.Acquire && e.Phase == history.Ok:
		if a := r.seen[holdKey{e.User, e.Op}]; a != nil {
			a.ok = *e
		}
	case e.Kind == history.Release, e.Kind == history.Lost: // the outcome, too: the invoke may have been dropped
		if a := r.seen[holdKey{e.User, e.Grant}]; a != nil && a.over.Kind == history.KindNone {
			a.over = *e
		}
	default:
	}
}

// faults returns the run's faults with their receipts as corrected by the history.
func (r *receipts) faults() []history.Fault {
	fs := make([]history.Fault, len(r.run.Faults))
	copy(fs, r.run.Faults)
	for i := range fs {
		f := &fs[i]
		if f.Grant == 0 || f.User == nil || f.Receipt.Status != history.Installed {
			continue
		}
		a := r.seen[holdKey{*f.User, f.Grant}]
		why := ""
		over, ended := a.over.Time, a.over.Kind != history.KindNone
		switch {
		case a.ok.Kind == history.KindNone:
			why = "it has no such grant"
		case r.clocks.Early(*f.User, a.ok.Time) > f.Bit+f.BitError:
			why = fmt.Sprintf("the grant was in hand only at %s, the stop was seen at %s", r.run.MS(a.ok.Time),
				r.run.MS(f.Bit))
		case ended && r.clocks.Late(*f.User, over) < f.Bit-f.BitError:
			why = fmt.Sprintf("a %s of that grant is stamped %s, the stop was seen at %s", a.over.Kind, r.run.MS(over),
				r.run.MS(f.Bit))
		case ended && r.clocks.Early(*f.User, over) < f.Bit+f.BitError:
			f.Receipt.Status = history.Indeterminate
			f.Receipt.Evidence += fmt.Sprintf("; but a %s of that grant is stamped %s, and the stop was seen at %s: the clocks may err by more than that", a.over.Kind, r.run.MS(over), r.run.MS(f.Bit))
		}
		if why != "" {
			f.Receipt.Status = history.NotInstalled
			f.Receipt.Evidence += "; but the history contradicts: " + why
		}
	}
	return fs
}

// made returns the injections that were made; a skipped one did nothing that a checker must know of.
func made(all []history.Fault) []history.Fault {
	return slices.DeleteFunc(slices.Clone(all),
		func(f history.Fault) bool { return f.Receipt.Status == history.NotMade })
}
