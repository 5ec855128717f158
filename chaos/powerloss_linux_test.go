package chaos

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/clock"
)

// onDisk is a process on a disk whose power can be cut.
type onDisk struct {
	*process
	found PowerLost
	deaf  bool
}

func (d onDisk) CutPower(ctx context.Context) (PowerLost, error) {
	if d.deaf {
		return PowerLost{Synced: true, Time: clock.Now()}, nil
	}
	_, err := d.Kill(ctx)
	d.found.Time = clock.Now()
	return d.found, err
}

// broken is a disk that cannot be cut.
type broken struct{ *process }

func (broken) CutPower(context.Context) (PowerLost, error) {
	return PowerLost{}, errors.New("inappropriate ioctl for device")
}

func TestPowerLoss(t *testing.T) {
	for name, c := range map[string]struct {
		disk onDisk
		want history.ReceiptStatus
	}{
		"only what was synced is left":    {onDisk{found: PowerLost{Synced: true}}, history.Installed},
		"what was not synced is there":    {onDisk{found: PowerLost{Synced: true, Unsynced: true}}, history.NotInstalled},
		"what was synced is gone as well": {onDisk{found: PowerLost{}}, history.NotInstalled},
		"the process is still there":      {onDisk{deaf: true}, history.NotInstalled},
	} {
		t.Run(name, func(t *testing.T) {
			d := c.disk
			d.process = newProcess(t, "a")
			heal, r, err := newFault(t, "power-loss", "").Inject(t.Context(), Scope{On: []Node{d}, Service: d})
			if err != nil {
				t.Fatal(err)
			}
			wantStatus(t, name, r, c.want)
			r, err = heal(t.Context())
			if err != nil || !answers(t, d.process) {
				t.Errorf("heal: %v; it must be back", err)
			}
			wantStatus(t, "heal", r, history.Installed)
		})
	}
}

func TestPowerThatCannotBeCut(t *testing.T) {
	a := newProcess(t, "a")
	heal, r, err := newFault(t, "power-loss", "").Inject(t.Context(), Scope{On: []Node{broken{a}}, Service: a})
	if err == nil || !strings.Contains(r.Evidence, "inappropriate ioctl") {
		t.Errorf("error %v, evidence %q", err, r.Evidence)
	}
	wantStatus(t, "power-loss", r, history.NotInstalled)
	if _, err := heal(t.Context()); err != nil || !answers(t, a) {
		t.Errorf("heal: %v", err)
	}
	f := newFault(t, "power-loss", "")
	if p, ok := f.(Prepared); !ok || len(p.Preparations()) != 1 || p.Preparations()[0] != LoopDisk {
		t.Error("it does not say that it needs a disk of its own")
	}
}
