package chaos

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockquake/lockquake/history"
)

// CanCutPower is the capability of a PowerCutter.
const CanCutPower Capability = "cut-power"

// LoopDisk has the node's data directory on a disk of its own, a file system in a loop file, whose power can be cut.
const LoopDisk Preparation = "loop-disk"

// PowerCutter is a node on a disk whose power can be cut.
type PowerCutter interface {
	Inspector
	// CutPower drops what was not synced, kills the process, and looks at what is on the disk when nobody has it any more.
	CutPower(ctx context.Context) (PowerLost, error)
}

// PowerLost is what was found on a disk after its power was cut. Two files tell: one was written and synced before the process
// started, the other was written right before the cut, and not synced.
type PowerLost struct {
	Synced   bool          // the first is there
	Unsynced bool          // so is the second
	Held     DataListing   // all that is there
	Gap      time.Duration // from the cut to the SIGKILL
	Time     int64         // ns of CLOCK_MONOTONIC of the cut
}

// FactLastWrite is what the server has at the key that FactWrites writes: another value after each.
const FactLastWrite = "last-write"

// powerLoss is what a server's machine does when its power fails: what was not synced is gone, and so is the process.
type powerLoss struct{}

func powerLossKind() Kind {
	return Kind{
		Name: "power-loss",
		Doc: "Ends a server, and takes away what it had written and not synced. Receipt: on its disk, mounted again, there is a file that was " +
			"synced and not one that was not. The heal starts it again and waits until it serves.",
		Needs:   []Capability{CanInspect, CanCutPower, CanStart},
		Lasting: true,
		Stops:   true,
		Kills:   true,
		New: func(decode func(any) error) (Fault, error) {
			f := powerLoss{}
			return f, decode(&f)
		},
	}
}

// Preparations is what its targets must be given before they start.
func (powerLoss) Preparations() []Preparation { return []Preparation{LoopDisk} }

type powered interface {
	killable
	PowerCutter
}

// Inject cuts the power of all targets at once.
func (powerLoss) Inject(ctx context.Context, s Scope) (Heal, history.Receipt, error) {
	targets, err := capable[powered](s.On, CanCutPower)
	if err != nil {
		return nothingToHeal, nothingDone(err), err
	}
	var dark hits[unpowered]
	heal := func(ctx context.Context) (history.Receipt, error) {
		return dark.heal(ctx, func(n unpowered) (history.Receipt, error) { return n.back(ctx, s) })
	}
	receipt, err := onEach(targets, func(n powered) (history.Receipt, error) {
		return cut(ctx, unpowered{powered: n, gauge: gauge{s.Service, n.Name()}}, &dark)
	})
	return heal, receipt, err
}

// unpowered is one target, and what it had acknowledged last.
type unpowered struct {
	powered
	gauge
	last string // "" where it cannot be asked
}

func cut(ctx context.Context, n unpowered, dark *hits[unpowered]) (history.Receipt, error) {
	before, err := n.Inspect(ctx)
	if err != nil {
		return history.Receipt{}, fmt.Errorf("its state could not be read: %w", err)
	}
	if before.Gone() {
		return seen(history.NotInstalled, before.Time, n.Name()+" had no process"), nil
	}
	if n.knows(FactLastWrite) {
		if _, err := n.writeTime(ctx); err == nil {
			n.last, _ = n.ask(ctx, FactLastWrite)
		}
	}
	dark.note(n)
	lost, failed := n.CutPower(ctx)
	after, err := n.Inspect(ctx)
	if err = errors.Join(failed, err); err != nil {
		return history.Receipt{}, err
	}
	text := fmt.Sprintf("%s: before %s, after %s, killed %v after its file system was shut down", n.Name(), before, after,
		lost.Gap.Round(time.Microsecond))
	if !after.Gone() {
		return seen(history.NotInstalled, after.Time, text+": it is still there"), nil
	}
	text += fmt.Sprintf("; its disk, mounted again, holds %s", lost.Held)
	switch {
	case lost.Unsynced:
		return seen(history.NotInstalled, lost.Time, text+", with a file that was not synced"), nil
	case !lost.Synced:
		return seen(history.NotInstalled, lost.Time, text+", without the file that was synced"), nil
	}
	return seen(history.Installed, lost.Time, text+", with the file that was synced before it started and without the one that was written "+
		"right before, and not synced"), nil
}

// back gives a target its power back: it is started, and the receipt tells what became of the write that it had acknowledged last.
func (n unpowered) back(ctx context.Context, s Scope) (history.Receipt, error) {
	r, err := revived(ctx, n.powered, s)
	if n.last == "" || err != nil {
		return r, err
	}
	now, ok := n.ask(ctx, FactLastWrite)
	switch {
	case !ok:
		r.Evidence += "; what became of the write that it had acknowledged last is not known"
	case now == n.last:
		r.Evidence += "; the write that it had acknowledged last is there"
	default:
		r.Evidence += "; the write that it had acknowledged last is gone"
	}
	return r, nil
}
