package datadir

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// TestACopyComesBack: changes, additions and removals since the save are undone, and the copy is not part of the data.
func TestACopyComesBack(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		at := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o700), os.WriteFile(at, []byte(text), 0o640)); err != nil {
			t.Fatal(err)
		}
	}
	write("db", "one")
	write("wal/1", "two")
	d, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.Close() }()
	if err := d.Restore(); !errors.Is(err, ErrNoCopy) {
		t.Errorf("a restore of nothing: %v", err)
	}
	before, _ := d.List()
	if err := errors.Join(d.Save(), d.Save()); err != nil {
		t.Fatal(err)
	}
	write("db", "changed")
	write("wal/2", "added")
	if err := os.Remove(filepath.Join(dir, "wal", "1")); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the copy stays
		if err := d.Restore(); err != nil {
			t.Fatal(err)
		}
		after, err := d.List()
		if err != nil || after != before {
			t.Errorf("it holds %s, %v; want %s", after, err, before)
		}
		db, _ := os.ReadFile(filepath.Join(dir, "db"))
		wal, _ := os.ReadFile(filepath.Join(dir, "wal", "1"))
		if string(db) != "one" || string(wal) != "two" {
			t.Errorf("db %q, wal/1 %q", db, wal)
		}
		info, err := os.Stat(filepath.Join(dir, "db"))
		if err != nil || info.Mode().Perm() != 0o640 {
			t.Errorf("%v, %v", info.Mode(), err)
		}
	}
	if err := d.Empty(); err != nil {
		t.Fatal(err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("%v is left", left)
	}
}
