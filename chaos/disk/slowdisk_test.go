//go:build linux

package disk

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/chaos/faulttest"
	"github.com/lockquake/lockquake/history"
)

// syncer is a node that syncs, and a service that reports it.
type syncer struct {
	faulttest.Node
	facts []string // that it knows
	slow  bool     // it waits when its calls are delayed
	deaf  bool     // the agent claims to delay its calls, but counts none
	left  int      // threads that stay traced
	other int      // injections that still delay calls

	mu   sync.Mutex
	by   time.Duration
	made int64
}

func (d *syncer) HoldSyncs(_ context.Context, _ string, by time.Duration) (Syncs, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.by = by
	return Syncs{}, nil
}

func (d *syncer) SyncsHeld(context.Context) (Syncs, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.deaf {
		return Syncs{}, nil
	}
	d.made = max(d.made, 1)
	return Syncs{Calls: d.made, Holding: 1, Traced: 4}, nil
}

func (d *syncer) LetSyncsGo(context.Context, string) (Syncs, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.by = 0
	return Syncs{Calls: d.made, Traced: d.left, Others: d.other}, nil
}

func (d *syncer) Facts() map[string]string {
	out := map[string]string{}
	for _, f := range d.facts {
		out[f] = ""
	}
	return out
}

func (d *syncer) Ask(_ context.Context, _, fact string) (string, error) {
	d.mu.Lock()
	by := d.by
	d.mu.Unlock()
	if !d.slow {
		by = 0
	}
	switch fact {
	case chaos.FactSyncing:
		return fmt.Sprint(by > 0), nil
	case chaos.FactSyncTime:
		return fmt.Sprintf("%.3f", 7+by.Seconds()*1000), nil
	case chaos.FactWrites:
		time.Sleep(by)
		return "true", nil
	}
	return "", errors.New("no such fact")
}

func TestSlowDisk(t *testing.T) {
	for name, c := range map[string]struct {
		*syncer
		want history.ReceiptStatus
		says string
	}{
		"it waits by itself":   {&syncer{facts: []string{chaos.FactSyncing}, slow: true}, history.Installed, "a wait for a sync"},
		"it counts the time":   {&syncer{facts: []string{chaos.FactSyncTime}, slow: true}, history.Installed, "500ms more in syncs"},
		"its writes take long": {&syncer{facts: []string{chaos.FactWrites}, slow: true}, history.Installed, "a write took "},
		"it tells nothing":     {&syncer{slow: true}, history.Indeterminate, "has no measure of its disk"},
		"it is not impressed":  {&syncer{facts: []string{chaos.FactSyncing, chaos.FactSyncTime, chaos.FactWrites}}, history.NotInstalled, "not seen to wait"},
		"no call is held":      {&syncer{facts: []string{chaos.FactWrites}, slow: true, deaf: true}, history.NotInstalled, "made no call"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, by := c.syncer, "by: 500ms"
			d.Node = "a"
			if c.says == "a write took " {
				by = "by: 2s" // the write before must take less than half of that, even on a busy machine
			}
			heal, r, err := faulttest.New(t, Kinds(), "slow-disk", by).Inject(t.Context(), chaos.Scope{On: []chaos.Node{d}, Service: d})
			if err != nil {
				t.Fatal(err)
			}
			faulttest.WantStatus(t, name, r, c.want)
			if !strings.Contains(r.Evidence, c.says) {
				t.Errorf("evidence %q", r.Evidence)
			}
			r, err = heal(t.Context())
			if err != nil || d.by != 0 {
				t.Errorf("heal: %v, still held for %v", err, d.by)
			}
			faulttest.WantStatus(t, "heal", r, history.Installed)
		})
	}
}

func TestSlowDiskThatDoesNotHeal(t *testing.T) {
	d := &syncer{Node: "a", facts: []string{chaos.FactSyncing}, slow: true, left: 2}
	heal, r, err := faulttest.New(t, Kinds(), "slow-disk", "by: 500ms").Inject(t.Context(), chaos.Scope{On: []chaos.Node{d}, Service: d})
	if err != nil {
		t.Fatal(err)
	}
	faulttest.WantStatus(t, "slow-disk", r, history.Installed)
	if r, err = heal(t.Context()); err == nil {
		t.Error("no error from a heal that healed nothing")
	}
	faulttest.WantStatus(t, "heal", r, history.NotInstalled)
	d.other = 1
	if r, err = heal(t.Context()); err != nil || !strings.Contains(r.Evidence, "another injection still delays calls") {
		t.Errorf("a heal beside another injection: %v, %s", err, r.Evidence)
	}
	faulttest.WantStatus(t, "heal beside another", r, history.Installed)
}

func TestSlowDiskRefusesWhatMakesNoSense(t *testing.T) {
	for _, by := range []string{"0", "1000000", "60000000000"} {
		k := faulttest.Kind(t, Kinds(), "slow-disk")
		if _, err := k.New(func(into any) error { _, err := fmt.Sscan(by, &into.(*slowDisk).By); return err }); err == nil {
			t.Errorf("by %s ns was taken", by)
		}
	}
}
