//go:build linux

package chaos

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockquake/lockquake/history"
)

// disk is a node that syncs, and a service that tells of it.
type disk struct {
	bareNode
	facts []string // that it knows
	slow  bool     // it does wait when it is held
	deaf  bool     // who holds its calls says so, and counts none
	left  int      // threads that stay traced

	mu   sync.Mutex
	by   time.Duration
	made int64
}

func (d *disk) HoldSyncs(_ context.Context, _ string, by time.Duration) (SyncsHeld, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.by = by
	return SyncsHeld{}, nil
}

func (d *disk) SyncsHeld(context.Context) (SyncsHeld, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.deaf {
		return SyncsHeld{}, nil
	}
	d.made = max(d.made, 1)
	return SyncsHeld{Calls: d.made, Holding: 1, Traced: 4}, nil
}

func (d *disk) LetSyncsGo(context.Context, string) (SyncsHeld, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.by = 0
	return SyncsHeld{Calls: d.made, Traced: d.left}, nil
}

func (d *disk) Facts() map[string]string {
	out := map[string]string{}
	for _, f := range d.facts {
		out[f] = ""
	}
	return out
}

func (d *disk) Ask(_ context.Context, _, fact string) (string, error) {
	d.mu.Lock()
	by := d.by
	d.mu.Unlock()
	if !d.slow {
		by = 0
	}
	switch fact {
	case FactSyncing:
		return fmt.Sprint(by > 0), nil
	case FactSyncTime:
		return fmt.Sprintf("%.3f", 7+by.Seconds()*1000), nil
	case FactWrites:
		time.Sleep(by)
		return "true", nil
	}
	return "", errors.New("no such fact")
}

func TestSlowDisk(t *testing.T) {
	for name, c := range map[string]struct {
		*disk
		want history.ReceiptStatus
		says string
	}{
		"it waits by its own account": {&disk{facts: []string{FactSyncing}, slow: true}, history.Installed, "waits for a sync"},
		"it counts the time":          {&disk{facts: []string{FactSyncTime}, slow: true}, history.Installed, "500ms more in syncs"},
		"its writes take long":        {&disk{facts: []string{FactWrites}, slow: true}, history.Installed, "took a write in 5"},
		"it tells nothing":            {&disk{slow: true}, history.Indeterminate, "tells nothing"},
		"it is not impressed":         {&disk{facts: []string{FactSyncing, FactSyncTime, FactWrites}}, history.NotInstalled, "not seen to wait"},
		"no call is held":             {&disk{facts: []string{FactWrites}, slow: true, deaf: true}, history.NotInstalled, "made no call"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := c.disk
			d.bareNode = "a"
			heal, r, err := newFault(t, "slow-disk", `{"by_ns": 500000000}`).Inject(t.Context(), Scope{On: []Node{d}, Service: d})
			if err != nil {
				t.Fatal(err)
			}
			wantStatus(t, name, r, c.want)
			if !strings.Contains(r.Evidence, c.says) {
				t.Errorf("evidence %q", r.Evidence)
			}
			r, err = heal(t.Context())
			if err != nil || d.by != 0 {
				t.Errorf("heal: %v, still held for %v", err, d.by)
			}
			wantStatus(t, "heal", r, history.Installed)
		})
	}
}

func TestSlowDiskThatDoesNotHeal(t *testing.T) {
	d := &disk{bareNode: "a", facts: []string{FactSyncing}, slow: true, left: 2}
	heal, r, err := newFault(t, "slow-disk", `{"by_ns": 500000000}`).Inject(t.Context(), Scope{On: []Node{d}, Service: d})
	if err != nil {
		t.Fatal(err)
	}
	wantStatus(t, "slow-disk", r, history.Installed)
	if r, err = heal(t.Context()); err == nil {
		t.Error("no error from a heal that healed nothing")
	}
	wantStatus(t, "heal", r, history.NotInstalled)
}

func TestSlowDiskRefusesWhatMakesNoSense(t *testing.T) {
	for _, by := range []string{"0", "1000000", "60000000000"} {
		k, _ := Lookup("slow-disk")
		if _, err := k.New(func(into any) error { _, err := fmt.Sscan(by, &into.(*slowDisk).By); return err }); err == nil {
			t.Errorf("by %s ns was taken", by)
		}
	}
}
