// Package datadir looks into the data directories of nodes, and empties them.
package datadir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"github.com/lockquake/lockquake/chaos/disk"
)

// Directory is a directory held open: it can be looked into wherever it is mounted, and after its process has ended.
type Directory struct{ root *os.Root }

// Open opens the directory at a path of this process.
func Open(path string) (*Directory, error) {
	r, err := os.OpenRoot(path)
	if err != nil {
		return nil, fmt.Errorf("open the data directory: %w", err)
	}
	return &Directory{r}, nil
}

// List counts what the directory holds now. What comes and goes meanwhile may be counted or not.
func (d *Directory) List() (disk.Listing, error) {
	info, err := d.root.Stat(".")
	if err != nil {
		return disk.Listing{}, fmt.Errorf("look at the data directory: %w", err)
	}
	out := disk.Listing{ID: identity(info)}
	err = fs.WalkDir(d.root.FS(), ".", func(path string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) || path == "." && err == nil {
			return nil
		}
		if err != nil {
			return err
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		out.Entries++
		if info.Mode().IsRegular() {
			out.Bytes += info.Size()
		}
		return nil
	})
	if err != nil {
		return out, fmt.Errorf("list the data directory: %w", err)
	}
	return out, nil
}

// Empty removes everything from the directory, and leaves the directory itself.
func (d *Directory) Empty() error {
	entries, err := fs.ReadDir(d.root.FS(), ".")
	if err != nil {
		return fmt.Errorf("list the data directory: %w", err)
	}
	var errs []error
	for _, e := range entries {
		errs = append(errs, d.root.RemoveAll(e.Name()))
	}
	return errors.Join(errs...)
}

// Close lets the directory go.
func (d *Directory) Close() error { return d.root.Close() }

// identity names a directory by its file system and number there.
func identity(info fs.FileInfo) string {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return fmt.Sprintf("%d:%d", s.Dev, s.Ino)
	}
	return ""
}
