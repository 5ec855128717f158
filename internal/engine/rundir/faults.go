package rundir

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"sync"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/internal/cluster"
	"github.com/lockquake/lockquake/internal/engine/plan"
	"github.com/lockquake/lockquake/results"
)

// Faults records the injections and their results: faults.jsonl.
type Faults struct {
	Dir *Dir // for the directory and the log

	mu   sync.Mutex
	list []*Injected // by the fault's id less one
}

// Injected is one use of a fault. Its parts are read and written under the lock of its log.
type Injected struct {
	Inj plan.Injection
	*history.Fault
	Counter *chaos.Counted // counts its packets; nil: nothing does
	Follows *chaos.Lead    // follows the lead since; nil: nothing does
	Reach   *chaos.Reach   // the nodes that it hits, while it is active and the schedule has a promise
	Waited  int64          // ns: how long its effect was measured, and
	Over    int64          // ns: how much of that was more than it should be
}

// HealDue returns when (ns) a heal that begins at until should have begun. A fault aimed at a holder bites before it
// is measured, so its time may be over when the measurement ends. The time of other faults begins with the
// measurement, and excess time of that makes the heal late.
func (f *Injected) HealDue(until int64) int64 {
	if f.Bit == f.Receipt.Time {
		until -= f.Over
	}
	return max(until, f.Receipt.Done+f.Waited)
}

// Add begins the record of an injection.
func (l *Faults) Add(d plan.Due, planned int64) *Injected {
	inj := d.Inj
	l.mu.Lock()
	defer l.mu.Unlock()
	f := &Injected{Inj: inj, Fault: &history.Fault{
		ID: len(l.list) + 1, Entry: inj.Entry, Name: inj.Kind.Name, As: inj.As, Selector: inj.On, Target: inj.On,
		Params:  inj.Params,
		Planned: planned, For: int64(d.Lasts), Start: clock.Now(), Traits: inj.Kind.Traits(inj.Fault),
	}}
	l.list = append(l.list, f)
	return f
}

// Change changes the records under the lock.
func (l *Faults) Change(how func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	how()
}

// Count returns how many injections were made or tried, and how many of them are not yet healed.
func (l *Faults) Count() (all, standing int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range l.list {
		if f.End == 0 {
			standing++
		}
	}
	return len(l.list), standing
}

// Of returns the injection with an id.
func (l *Faults) Of(id int) *Injected {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.list[id-1]
}

// Following returns what follows the lead since the injections.
func (l *Faults) Following() []*chaos.Lead {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []*chaos.Lead
	for _, f := range l.list {
		if f.Follows != nil {
			out = append(out, f.Follows)
		}
	}
	return out
}

// Admit returns why an injection would break the schedule's promise, or "": then it counts as active from now on.
func (l *Faults) Admit(f *Injected, promise chaos.Promise, servers []string, reach chaos.Reach) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var others []chaos.Reach
	for _, other := range l.list {
		if other.Reach != nil {
			others = append(others, *other.Reach)
		}
	}
	why := promise.Broken(servers, others, reach)
	if why == "" {
		f.Reach = &reach
	}
	return why
}

// KilledAt returns the last moment at which a node killed by a fault was certainly alive: just before the signal.
func (l *Faults) KilledAt(node string) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	var at int64
	for _, f := range l.list {
		if f.Inj.Kind.Kills && f.Receipt.Status != history.NotMade && slices.Contains(f.Targets, node) {
			at = max(at, f.Start)
		}
	}
	return at
}

// GoneAt returns when a node killed by a fault was first seen gone; 0 if it was not.
func (l *Faults) GoneAt(node string) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range l.list {
		if f.Inj.Kind.Kills && f.Receipt.Status == history.Installed && slices.Contains(f.Targets, node) {
			return f.Receipt.Time
		}
	}
	return 0
}

// Killed reports whether a fault killed a node and the node need not have come back.
func (l *Faults) Killed(n *cluster.Node) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range l.list {
		kills := f.Inj.Kind.Kills && f.Receipt.Status != history.NotInstalled && f.Receipt.Status != history.NotMade
		if kills && slices.Contains(f.Targets, n.Name()) && (f.Healed == nil || !n.Process.Restartable()) {
			return true
		}
	}
	return false
}

// Damage returns which injection may have changed a server for good, or "".
func (l *Faults) Damage() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range l.list {
		if f.Receipt.Status == history.NotMade {
			continue
		}
		if d, ok := f.Inj.Fault.(chaos.Damaging); ok && d.Damages() {
			return fmt.Sprintf("%s on %s took data away", f.Name, f.Target)
		}
		if f.Healed == nil || f.Healed.Status != history.Installed {
			return fmt.Sprintf("%s on %s was not seen healed", f.Name, f.Target)
		}
	}
	return ""
}

// Outcomes returns the targets of those scheduled injections whose targets were not known before.
func (l *Faults) Outcomes() map[int]string {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := map[int]string{}
	for _, f := range l.list {
		switch {
		case f.Inj.Place == 0:
		case f.Receipt.Status == history.NotMade:
			out[f.Inj.Place-1] = "not made: " + f.Receipt.Evidence
		case f.Target != f.Inj.Selector.String():
			out[f.Inj.Place-1] = f.Target
		}
	}
	return out
}

// At reports whether a fault hit a node at ns t or later.
func (l *Faults) At(node string, t int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.list, func(f *Injected) bool {
		return slices.Contains(f.Targets, node) && (f.End == 0 || f.End >= t)
	})
}

// Write writes faults.jsonl with what is known now.
func (l *Faults) Write() {
	l.mu.Lock()
	defer l.mu.Unlock()
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	for _, f := range l.list {
		if err := enc.Encode(f.Fault); err != nil {
			l.Dir.Log.Error("faults", "error", err)
		}
	}
	if err := results.WriteAtomically(filepath.Join(l.Dir.Path, results.FileFaults), b.Bytes()); err != nil {
		l.Dir.Log.Error("faults", "error", err)
	}
}
