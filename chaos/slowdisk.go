package chaos

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/lockquake/lockquake/history"
)

// CanHoldSyncs is the capability of a SyncHolder.
const CanHoldSyncs Capability = "hold-syncs"

// SyncHolder is a node whose process's calls to fsync and its like can be held back.
type SyncHolder interface {
	// HoldSyncs holds each call for that long, until LetSyncsGo with the same key. What several ask for adds up.
	HoldSyncs(ctx context.Context, key string, by time.Duration) (SyncsHeld, error)
	// SyncsHeld asks what was held so far.
	SyncsHeld(ctx context.Context) (SyncsHeld, error)
	// LetSyncsGo ends it.
	LetSyncsGo(ctx context.Context, key string) (SyncsHeld, error)
}

// SyncsHeld is what whoever holds the calls says of it. It is not taken for a proof.
type SyncsHeld struct {
	Calls   int64         // held back since the process was started
	Holding int           // of these, at this moment
	Early   int64         // of these, let go before their time
	Least   time.Duration // the shortest time for which one was held that was not let go early; 0 where none ended
	Traced  int           // threads that are watched for such calls
	Gone    bool          // the process has ended
}

// The facts by which a server tells of its disk. An Observer knows those that its service can tell.
const (
	// FactSyncing is "true" while the server waits for a sync of its log.
	FactSyncing = "syncing"
	// FactSyncTime is the time that the server has spent in syncs of its log since it started, in milliseconds.
	FactSyncTime = "sync-ms"
	// FactWrites is "true" when the server took a write of ours, at a key that no lock has. Asking for it makes the write.
	FactWrites = "writes"
)

// slowDisk makes each fsync of a server take longer, as a disk does that is worn, busy or at the other end of a network.
type slowDisk struct {
	// By is for how long each call is held before the kernel sees it.
	By time.Duration `yaml:"by" json:"by_ns"`
}

const (
	minHold = 10 * time.Millisecond
	maxHold = 10 * time.Second
)

func slowDiskKind() Kind {
	return Kind{
		Name: "slow-disk",
		Doc: "Holds each fsync, fdatasync, syncfs, sync and msync of a server back for `by` (500ms), until it is healed. Receipt: the server's own " +
			"measure of its disk, or how long it takes to take a write, beside the number of calls that were held.",
		Needs:   []Capability{CanHoldSyncs},
		Try:     []string{"by: 500ms"},
		Lasting: true,
		Syncs:   true,
		Sample:  "{by: 50ms..500ms}",
		New: func(decode func(any) error) (Fault, error) {
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
	Node
	SyncHolder
}

// slowKey makes the keys of injections.
var slowKey atomic.Int64

// Inject begins to hold the calls of all targets at once, and waits until each was seen to wait for its disk.
func (f slowDisk) Inject(ctx context.Context, s Scope) (Heal, history.Receipt, error) {
	targets, err := capable[syncHolding](s.On, CanHoldSyncs)
	if err != nil {
		return nothingToHeal, nothingDone(err), err
	}
	var all []*slowed
	for _, n := range targets {
		all = append(all, &slowed{syncHolding: n, gauge: gauge{s.Service, n.Name()}, by: f.By, key: fmt.Sprintf("slow-%d", slowKey.Add(1))})
	}
	heal := func(ctx context.Context) (history.Receipt, error) {
		return onEach(all, func(t *slowed) (history.Receipt, error) { return t.heal(ctx) })
	}
	receipt, err := onEach(all, func(t *slowed) (history.Receipt, error) { return t.inject(ctx) })
	return heal, receipt, err
}

// slowed is one target.
type slowed struct {
	syncHolding
	gauge
	by  time.Duration
	key string
}

// inject holds the target's calls and looks how the server takes it.
func (t *slowed) inject(ctx context.Context) (history.Receipt, error) {
	before := t.read(ctx)
	was, err := t.HoldSyncs(ctx, t.key, t.by)
	if err != nil {
		return history.Receipt{}, err
	}
	stop := t.provoke(ctx)
	p, err := t.prove(ctx, proof{before: before, was: was, write: stop.took})
	stop.cancel()
	if err != nil {
		return history.Receipt{}, err
	}
	text := fmt.Sprintf("%s: %s; %d calls were held by now, %d of its threads are watched", t.Name(), p.text, p.held.Calls-was.Calls, p.held.Traced)
	return seen(p.status, 0, text), nil
}

// heal lets the calls go, and looks at the server again.
func (t *slowed) heal(ctx context.Context) (history.Receipt, error) {
	held, err := t.LetSyncsGo(ctx, t.key)
	if err != nil {
		return history.Receipt{}, err
	}
	text := fmt.Sprintf("%s: %d calls had been held", t.Name(), held.Calls)
	if held.Least > 0 {
		text += fmt.Sprintf(", each for %v or longer", held.Least.Round(100*time.Microsecond))
	}
	if held.Early > 0 {
		text += fmt.Sprintf(", but %d that were let go early", held.Early)
	}
	switch {
	case held.Gone:
		return seen(history.Installed, 0, text+"; its process ended"), nil
	case held.Traced > 0 && !t.others():
		return seen(history.NotInstalled, 0, text), fmt.Errorf("%d of its threads are still watched", held.Traced)
	case held.Traced > 0:
		return seen(history.Installed, 0, text+"; another injection still holds calls"), nil
	}
	took, err := t.writeTime(ctx)
	if err != nil {
		return seen(history.Installed, 0, text+"; none of its threads is watched any more"), nil //nolint:nilerr // it may be down for another reason
	}
	text += fmt.Sprintf("; none of its threads is watched any more, and it takes a write in %v", took.Round(100*time.Microsecond))
	if took >= t.by {
		return seen(history.Indeterminate, 0, text), nil
	}
	return seen(history.Installed, 0, text), nil
}

// others tells whether the node's calls are held by another injection as well: what was let go is held again.
func (t *slowed) others() bool {
	c, ok := t.syncHolding.(interface{ SyncHolds() int })
	return ok && c.SyncHolds() > 0
}
