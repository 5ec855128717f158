package process

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/chaos/disk"
	"github.com/lockquake/lockquake/chaos/faulttest"
	"github.com/lockquake/lockquake/history"
)

// keeper is a process that has a data directory.
type keeper struct {
	*realProcess
	dir   string
	holds int // how many are held open
	copy  []byte
}

func newKeeper(t *testing.T) *keeper {
	t.Helper()
	k := &keeper{realProcess: newProcess(t, "a"), dir: t.TempDir()}
	if err := os.MkdirAll(filepath.Join(k.dir, "log"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(k.dir, "log", "1"), []byte("hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	return k
}

func (k *keeper) HoldData(context.Context) (disk.Data, error) {
	k.holds++
	return &directory{k: k}, nil
}

type directory struct {
	k    *keeper
	deaf bool
}

func (d *directory) List(context.Context) (disk.Listing, error) {
	out := disk.Listing{ID: d.k.dir}
	return out, filepath.Walk(d.k.dir, func(path string, info os.FileInfo, err error) error {
		if err == nil && path != d.k.dir {
			out.Entries++
			if info.Mode().IsRegular() {
				out.Bytes += info.Size()
			}
		}
		return err
	})
}

func (d *directory) Lose(context.Context) error {
	if d.deaf {
		return nil
	}
	return os.RemoveAll(filepath.Join(d.k.dir, "log"))
}

func (d *directory) Save(context.Context) error {
	b, err := os.ReadFile(filepath.Join(d.k.dir, "log", "1"))
	d.k.copy = b
	return err
}

func (d *directory) Restore(context.Context) error {
	if d.k.copy == nil {
		return errors.New("nothing was put aside")
	}
	return os.WriteFile(filepath.Join(d.k.dir, "log", "1"), d.k.copy, 0o600)
}

func (d *directory) Release(context.Context) error {
	d.k.holds--
	return nil
}

// deafToLoss says that it lost its data.
type deafToLoss struct{ *keeper }

func (d deafToLoss) HoldData(ctx context.Context) (disk.Data, error) {
	held, err := d.keeper.HoldData(ctx)
	held.(*directory).deaf = true
	return held, err
}

// mover has another directory after each start.
type mover struct{ *keeper }

func (m mover) Start(ctx context.Context) error {
	m.dir = filepath.Join(m.dir, "log")
	return m.keeper.Start(ctx)
}

// TestARestoreBringsBackWhatWasSaved: writes after the save are gone, and nothing is restored that was not saved.
func TestARestoreBringsBackWhatWasSaved(t *testing.T) {
	k := newKeeper(t)
	file := filepath.Join(k.dir, "log", "1")
	inject := func(params string) (history.Receipt, error) {
		heal, r, err := newFault(t, "restart", params).Inject(t.Context(), chaos.Scope{On: []chaos.Node{k}, Service: k})
		if _, failed := heal(t.Context()); failed != nil {
			t.Error(failed)
		}
		return r, err
	}
	if _, err := inject("data: restore"); err == nil || !strings.Contains(err.Error(), "nothing was put aside") {
		t.Errorf("a restore of nothing ended with %v", err)
	}
	r, err := inject("data: save")
	if err != nil || !strings.Contains(r.Evidence, "a copy of it was saved") {
		t.Errorf("%v, %q", err, r.Evidence)
	}
	faulttest.WantStatus(t, "save", r, history.Installed)
	if err := os.WriteFile(file, []byte("hello again"), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err = inject("data: restore")
	if err != nil || !strings.Contains(r.Evidence, "the saved copy, 2 entries of 5 bytes") {
		t.Errorf("%v, %q", err, r.Evidence)
	}
	faulttest.WantStatus(t, "restore", r, history.Installed)
	if k.holds != 0 {
		t.Errorf("%d directories are still held", k.holds)
	}
}

func TestKilledNodesKeepTheirDataOrLoseIt(t *testing.T) {
	for params, left := range map[string]int{"": 1, "data: keep": 1, "data: lose": 0} {
		for _, fault := range []string{"kill", "restart"} {
			k := newKeeper(t)
			heal, r, err := newFault(t, fault, params).Inject(t.Context(), chaos.Scope{On: []chaos.Node{k}, Service: k})
			if err != nil {
				t.Fatal(err)
			}
			faulttest.WantStatus(t, fault+params, r, history.Installed)
			if !strings.Contains(r.Evidence, "held 2 entries of 5 bytes before") {
				t.Errorf("%s%s: evidence %q", fault, params, r.Evidence)
			}
			if files, _ := os.ReadDir(k.dir); len(files) != left {
				t.Errorf("%s%s: %d files are left, want %d", fault, params, len(files), left)
			}
			r, err = heal(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			faulttest.WantStatus(t, "heal of "+fault+params, r, history.Installed)
			if !strings.Contains(r.Evidence, "the same directory holds") {
				t.Errorf("the heal of %s%s says %q", fault, params, r.Evidence)
			}
			if k.holds != 0 {
				t.Errorf("%s%s: %d directories are still held", fault, params, k.holds)
			}
		}
	}
}

func TestDataThatWasNotLost(t *testing.T) {
	k := newKeeper(t)
	_, r, err := newFault(t, "restart", "data: lose").Inject(t.Context(), chaos.Scope{On: []chaos.Node{deafToLoss{k}}, Service: k})
	if err != nil {
		t.Fatal(err)
	}
	faulttest.WantStatus(t, "restart", r, history.NotInstalled)
}

func TestNothingToLoseProvesNothing(t *testing.T) {
	k := newKeeper(t)
	if err := os.RemoveAll(filepath.Join(k.dir, "log")); err != nil {
		t.Fatal(err)
	}
	_, r, err := newFault(t, "kill", "data: lose").Inject(t.Context(), chaos.Scope{On: []chaos.Node{k}, Service: k})
	if err != nil {
		t.Fatal(err)
	}
	faulttest.WantStatus(t, "kill", r, history.Indeterminate)
}

func TestAnotherDirectoryAfterTheStartProvesNothing(t *testing.T) {
	k := newKeeper(t)
	_, r, err := newFault(t, "restart", "").Inject(t.Context(), chaos.Scope{On: []chaos.Node{mover{k}}, Service: k})
	if err != nil {
		t.Fatal(err)
	}
	faulttest.WantStatus(t, "restart", r, history.Indeterminate)
}

func TestDataIsLostOnlyWhereThereIsSome(t *testing.T) {
	a := newProcess(t, "a")
	for _, fault := range []string{"kill", "restart"} {
		f := newFault(t, fault, "data: lose")
		if n, ok := f.(chaos.Needing); !ok || !slices.Contains(n.Needs(), disk.CanData) || !slices.Contains(n.Needs(), CanKill) {
			t.Errorf("%s does not say that it needs the data", fault)
		}
		_, r, err := f.Inject(t.Context(), chaos.Scope{On: []chaos.Node{a}, Service: a})
		if !errors.As(err, new(chaos.Unavailable)) {
			t.Errorf("%s: error %v", fault, err)
		}
		faulttest.WantStatus(t, fault, r, history.NotInstalled)
		if !answers(t, a) {
			t.Fatalf("%s was done all the same", fault)
		}
		if _, err := killKind().New(func(into any) error { into.(*kill).Data = "burn"; return nil }); err == nil {
			t.Error("data: burn was taken")
		}
	}
}
