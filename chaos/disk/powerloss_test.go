package disk

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/chaos/faulttest"
	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/clock"
)

// server is a node whose process is a number, and its own service.
type server struct {
	faulttest.Node
	starts int
	down   bool
}

func newServer() *server { return &server{Node: "a", starts: 1} }

func (s *server) Start(context.Context) error {
	s.starts, s.down = s.starts+1, false
	return nil
}

func (s *server) Running() bool     { return !s.down }
func (s *server) Restartable() bool { return true }

func (s *server) Inspect(context.Context) (chaos.ProcessState, error) {
	if s.down {
		return chaos.ProcessState{Time: clock.Now()}, nil
	}
	return chaos.ProcessState{PID: s.starts, Threads: map[string]int{"S": 1}, Time: clock.Now()}, nil
}

func (s *server) Facts() map[string]string { return map[string]string{chaos.FactServes: ""} }

func (s *server) Ask(context.Context, string, string) (string, error) {
	return strconv.FormatBool(!s.down), nil
}

// onDisk is a server on a disk whose power can be cut.
type onDisk struct {
	*server
	found PowerLost
	deaf  bool
}

func (d onDisk) CutPower(context.Context) (PowerLost, error) {
	if d.deaf {
		return PowerLost{Seen: Seen{Synced: true}, Time: clock.Now()}, nil
	}
	d.down = true
	d.found.Time = clock.Now()
	return d.found, nil
}

// broken is a disk that cannot be cut.
type broken struct{ *server }

func (broken) CutPower(context.Context) (PowerLost, error) {
	return PowerLost{}, errors.New("inappropriate ioctl for device")
}

func TestPowerLoss(t *testing.T) {
	for name, c := range map[string]struct {
		onDisk onDisk
		want   history.ReceiptStatus
	}{
		"only what was synced is left":    {onDisk{found: PowerLost{Seen: Seen{Synced: true}}}, history.Installed},
		"what was not synced is there":    {onDisk{found: PowerLost{Seen: Seen{Synced: true, Unsynced: true}}}, history.NotInstalled},
		"what was synced is gone as well": {onDisk{found: PowerLost{}}, history.NotInstalled},
		"the process is still there":      {onDisk{deaf: true}, history.NotInstalled},
	} {
		t.Run(name, func(t *testing.T) {
			d := c.onDisk
			d.server = newServer()
			heal, r, err := faulttest.New(t, Kinds(), "power-loss", "").Inject(t.Context(), chaos.Scope{On: []chaos.Node{d}, Service: d})
			if err != nil {
				t.Fatal(err)
			}
			faulttest.WantStatus(t, name, r, c.want)
			r, err = heal(t.Context())
			if err != nil || d.down {
				t.Errorf("heal: %v; it must be back", err)
			}
			faulttest.WantStatus(t, "heal", r, history.Installed)
		})
	}
}

func TestPowerThatCannotBeCut(t *testing.T) {
	a := newServer()
	heal, r, err := faulttest.New(t, Kinds(), "power-loss", "").Inject(t.Context(), chaos.Scope{On: []chaos.Node{broken{a}}, Service: a})
	if err == nil || !strings.Contains(r.Evidence, "inappropriate ioctl") {
		t.Errorf("error %v, evidence %q", err, r.Evidence)
	}
	faulttest.WantStatus(t, "power-loss", r, history.NotInstalled)
	if _, err := heal(t.Context()); err != nil || a.down {
		t.Errorf("heal: %v", err)
	}
	f := faulttest.New(t, Kinds(), "power-loss", "")
	if p, ok := f.(chaos.Prepared); !ok || len(p.Preparations()) != 1 || p.Preparations()[0] != LoopDisk {
		t.Error("it does not say that it needs a disk of its own")
	}
}
