package disk

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/internal/node"
)

// CanCutPower is the capability of a PowerCutter.
const CanCutPower chaos.Capability = "cut-power"

// LoopDisk puts the node's data directory on a disk of its own, a file system in a loop file, whose power can be cut.
const LoopDisk node.Preparation = "loop-disk"

// PowerCutter is a node on a disk whose power can be cut.
type PowerCutter interface {
	chaos.Inspector
	// CutPower drops unsynced data, kills the process, and inspects the disk once it is no longer mounted.
	CutPower(ctx context.Context) (PowerLost, error)
}

// PowerLost is what was found on a disk after its power was cut. One file was written and synced before the process
// started, another was written right before the cut and not synced.
type PowerLost struct {
	Seen
	Gap  time.Duration // from the cut to the SIGKILL
	Time int64         // ns of CLOCK_MONOTONIC of the cut
}

// powerLoss cuts the power of a server's machine: unsynced data are gone, and so is the process.
type powerLoss struct{}

func powerLossKind() chaos.Kind {
	return chaos.Kind{
		Name: "power-loss", Place: 19,
		Doc: "Kills a server and drops its unsynced writes. Receipt: its disk, mounted again, has a synced file and " +
			"lacks an unsynced one. The heal starts it again and waits until it serves.",
		Needs:   []chaos.Capability{chaos.CanInspect, CanCutPower, chaos.CanStart},
		Lasting: true,
		Stops:   true,
		Kills:   true,
		Began:   "power lost", Ended: "serves again",
		New: func(decode func(any) error) (chaos.Fault, error) {
			f := powerLoss{}
			return f, decode(&f)
		},
	}
}

// Preparations returns what its targets need before they start.
func (powerLoss) Preparations() []node.Preparation { return []node.Preparation{LoopDisk} }

// Damages: unsynced data are lost.
func (powerLoss) Damages() bool { return true }

type powered interface {
	chaos.Node
	PowerCutter
}

// Inject cuts the power of all targets concurrently.
func (powerLoss) Inject(ctx context.Context, s chaos.Scope) (chaos.Heal, history.Receipt, error) {
	return chaos.AtOnce(s, CanCutPower, func(n powered, cutNodes *chaos.Hits[unpowered]) (history.Receipt, error) {
		return cut(ctx, unpowered{powered: n, gauge: gauge{s.Service, n.Name()}}, cutNodes)
	}, func(ctx context.Context, n unpowered) (history.Receipt, error) { return n.back(ctx, s) })
}

// unpowered is one target and its last acknowledged write.
type unpowered struct {
	powered
	gauge
	last string // "" if it cannot be asked
}

func cut(ctx context.Context, n unpowered, cutNodes *chaos.Hits[unpowered]) (history.Receipt, error) {
	before, none, err := chaos.Before(ctx, n, "to end")
	if err != nil || before.Gone() {
		return none, err
	}
	waited := clock.Waits(ctx, readTime)
	if n.knows(chaos.FactLastWrite) {
		if _, err := n.writeTime(ctx); err == nil {
			n.last, _ = n.ask(ctx, chaos.FactLastWrite)
		}
	}
	waited()
	cutNodes.Note(n)
	lost, failed := n.CutPower(ctx)
	after, err := n.Inspect(ctx)
	if err = errors.Join(failed, err); err != nil {
		return history.Receipt{}, err
	}
	text := fmt.Sprintf("%s: before %s, after %s, killed %v after its file system was shut down", n.Name(), before,
		after,
		lost.Gap.Round(time.Microsecond))
	if !after.Gone() {
		return chaos.Seen(history.NotInstalled, after.Time, text+": it is still there"), nil
	}
	text += fmt.Sprintf("; its disk, mounted again, holds %s", lost.Listing)
	switch {
	case lost.Unsynced:
		return chaos.Seen(history.NotInstalled, lost.Time, text+", with a file that was not synced"), nil
	case !lost.Synced:
		return chaos.Seen(history.NotInstalled, lost.Time, text+", without the file that was synced"), nil
	}
	return chaos.Seen(history.Installed, lost.Time,
		text+", with the file synced before its start and without the unsynced one written right before the kill"), nil
}

// back restarts a target. The receipt says whether its last acknowledged write survived.
func (n unpowered) back(ctx context.Context, s chaos.Scope) (history.Receipt, error) {
	r, err := chaos.Revive(ctx, n.powered, s)
	if n.last == "" || err != nil {
		return r, err
	}
	now, ok := n.ask(ctx, chaos.FactLastWrite)
	switch {
	case !ok:
		r.Evidence += "; the fate of the last acknowledged write is unknown"
	case now == n.last:
		r.Evidence += "; the last acknowledged write is there"
	default:
		r.Evidence += "; the last acknowledged write is gone"
	}
	return r, nil
}
