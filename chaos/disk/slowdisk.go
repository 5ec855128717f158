package disk

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/clock"
)

// CanHoldSyncs is the capability of a SyncHolder.
const CanHoldSyncs chaos.Capability = "hold-syncs"

// SyncHolder is a node whose calls to fsync and similar system calls can be delayed.
type SyncHolder interface {
	// HoldSyncs delays each call by that long, until LetSyncsGo with the same key. Several delays add up.
	HoldSyncs(ctx context.Context, key string, by time.Duration) (Syncs, error)
	// SyncsHeld returns what was delayed so far.
	SyncsHeld(ctx context.Context) (Syncs, error)
	// LetSyncsGo ends it.
	LetSyncsGo(ctx context.Context, key string) (Syncs, error)
}

// slowDisk makes each fsync of a server take longer, as on a worn, busy or remote disk.
type slowDisk struct {
	// By is how long each call is delayed before the kernel sees it.
	By time.Duration `yaml:"by"`
}

// readTime bounds three questions to a server about its disk.
const readTime = 3 * chaos.AskTimeout

const (
	minHold = 10 * time.Millisecond
	maxHold = 10 * time.Second
)

func slowDiskKind() chaos.Kind {
	return chaos.Kind{
		Name: "slow-disk", Place: 18,
		Doc: "Delays each fsync, fdatasync, syncfs, sync and msync of a server by `by` (500ms), until the heal. " +
			"Receipt: the server's own measure of its disk or the duration of a write, and the number of delayed " +
			"calls.",
		Needs:   []chaos.Capability{CanHoldSyncs},
		Try:     []string{"by: 500ms"},
		Lasting: true,
		Syncs:   true,
		Sample:  "{by: 50ms..500ms}",
		Began:   "fsyncs delayed by {by}", Ended: "fsyncs as before",
		New: func(decode func(any) error) (chaos.Fault, error) {
			f := slowDisk{}
			if err := decode(&f); err != nil {
				return nil, err
			}
			if f.By < minHold || f.By > maxHold {
				return nil, fmt.Errorf("by of slow-disk is %s: want %s to %s", f.By, minHold, maxHold)
			}
			return f, nil
		},
	}
}

type syncHolding interface {
	chaos.Node
	SyncHolder
}

// slowKey makes the keys of injections.
var slowKey atomic.Int64

// Inject begins to delay the calls of all targets concurrently, and waits until each target was seen waiting for its
// disk.
func (f slowDisk) Inject(ctx context.Context, s chaos.Scope) (chaos.Heal, history.Receipt, error) {
	return chaos.AtOnce(s, CanHoldSyncs, func(n syncHolding, held *chaos.Hits[slowed]) (history.Receipt, error) {
		t := slowed{
			syncHolding: n, gauge: gauge{s.Service, n.Name()}, by: f.By,
			key: fmt.Sprintf("slow-%d", slowKey.Add(1)),
		}
		return t.inject(ctx, held)
	}, func(ctx context.Context, t slowed) (history.Receipt, error) { return t.heal(ctx) })
}

// slowed is one target.
type slowed struct {
	syncHolding
	gauge
	by  time.Duration
	key string
}

// inject delays the target's calls and checks the effect on the server.
func (t slowed) inject(ctx context.Context, held *chaos.Hits[slowed]) (history.Receipt, error) {
	waited := clock.Waits(ctx, readTime)
	before := t.read(ctx)
	waited()
	held.Note(t)
	was, err := t.HoldSyncs(ctx, t.key, t.by)
	if err != nil {
		return history.Receipt{}, err
	}
	load := t.keepWriting(ctx)
	p, err := t.prove(ctx, proof{before: before, was: was, write: load.took})
	load.cancel()
	if err != nil {
		return history.Receipt{}, err
	}
	text := fmt.Sprintf("%s: %s; %d calls delayed so far, %d of its threads are watched", t.Name(), p.text,
		p.held.Calls-was.Calls, p.held.Traced)
	return chaos.Seen(p.status, 0, text), nil
}

// heal ends the delay and checks the server again.
func (t slowed) heal(ctx context.Context) (history.Receipt, error) {
	held, err := t.LetSyncsGo(ctx, t.key)
	if err != nil {
		return history.Receipt{}, err
	}
	text := fmt.Sprintf("%s: %d calls were delayed", t.Name(), held.Calls)
	if held.Least > 0 {
		text += fmt.Sprintf(", each for %v or longer", held.Least.Round(100*time.Microsecond))
	}
	if held.Early > 0 {
		text += fmt.Sprintf(", except %d that were released early", held.Early)
	}
	switch {
	case held.Gone:
		return chaos.Seen(history.Installed, 0, text+"; its process ended"), nil
	case held.Traced > 0 && held.Others == 0:
		return chaos.Seen(history.NotInstalled, 0, text), fmt.Errorf("%d of its threads are still watched", held.Traced)
	case held.Traced > 0:
		return chaos.Seen(history.Installed, 0, text+"; another injection still delays calls"), nil
	}
	took, err := t.writeTime(ctx)
	if err != nil {
		return chaos.Seen(history.Installed, 0, text+"; none of its threads is watched any more"),
			nil //nolint:nilerr // it may be down for another reason
	}
	text += fmt.Sprintf("; none of its threads is watched any more, and a write takes %v",
		took.Round(100*time.Microsecond))
	if took >= t.by {
		return chaos.Seen(history.Indeterminate, 0, text), nil
	}
	return chaos.Seen(history.Installed, 0, text), nil
}
