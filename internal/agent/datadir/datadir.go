// Package datadir inspects, empties, saves and restores the data directories of nodes.
package datadir

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"

	"github.com/lockquake/lockquake/chaos/disk"
	"github.com/lockquake/lockquake/internal/node"
)

// Directory is a directory held open: it can be inspected wherever it is mounted, even after its process has ended.
type Directory struct{ root *os.Root }

// Open opens the directory at a path of this process.
func Open(path string) (*Directory, error) {
	r, err := os.OpenRoot(path)
	if err != nil {
		return nil, fmt.Errorf("open the data directory: %w", err)
	}
	return &Directory{r}, nil
}

// List counts the current contents of the directory. Entries that come or go meanwhile may be counted or not.
func (d *Directory) List() (disk.Listing, error) {
	info, err := d.root.Stat(".")
	if err != nil {
		return disk.Listing{}, fmt.Errorf("inspect the data directory: %w", err)
	}
	out := disk.Listing{ID: identity(info)}
	err = fs.WalkDir(d.root.FS(), ".", func(at string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) || at == "." && err == nil {
			return nil
		}
		if err != nil {
			return err
		}
		if at == aside {
			return fs.SkipDir
		}
		if at == node.RestoredMark {
			return nil
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

// Empty removes everything from the directory, including the saved copy, but not the directory itself.
func (d *Directory) Empty() error { return d.remove(func(string) bool { return true }) }

// remove removes the chosen entries.
func (d *Directory) remove(chosen func(name string) bool) error {
	entries, err := fs.ReadDir(d.root.FS(), ".")
	if err != nil {
		return fmt.Errorf("list the data directory: %w", err)
	}
	var errs []error
	for _, e := range entries {
		if chosen(e.Name()) {
			errs = append(errs, d.root.RemoveAll(e.Name()))
		}
	}
	return errors.Join(errs...)
}

// aside is the folder of the saved copy, within the directory itself: no other place is sure to be accessible, as
// large, and to outlive the process.
const aside = ".lockquake-aside"

// ErrNoCopy means that there is nothing to restore.
var ErrNoCopy = errors.New("no copy of the data was saved")

// Save copies everything, replacing an earlier copy.
func (d *Directory) Save() error {
	if err := d.root.RemoveAll(aside); err != nil {
		return fmt.Errorf("remove the earlier copy: %w", err)
	}
	if err := d.root.Mkdir(aside, 0o700); err != nil {
		return fmt.Errorf("save a copy of the data: %w", err)
	}
	return d.copy(".", aside)
}

// Restore replaces everything with the saved copy, and keeps the copy. It leaves node.RestoredMark.
func (d *Directory) Restore() error {
	if _, err := d.root.Stat(aside); err != nil {
		return fmt.Errorf("%w: %w", ErrNoCopy, err)
	}
	if err := d.remove(func(name string) bool { return name != aside }); err != nil {
		return err
	}
	if err := d.copy(aside, "."); err != nil {
		return err
	}
	mark, err := d.root.Create(node.RestoredMark)
	if err != nil {
		return fmt.Errorf("mark the data directory as restored: %w", err)
	}
	return mark.Close()
}

// copy copies the contents of one directory into another, with owners and modes. It leaves out anything but files and
// directories, such as sockets.
func (d *Directory) copy(from, to string) error {
	return fs.WalkDir(d.root.FS(), from, func(at string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case at == from:
			return nil
		case at == aside:
			return fs.SkipDir
		case at == node.RestoredMark:
			return nil
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		into := path.Join(to, strings.TrimPrefix(at, from+"/"))
		switch {
		case e.IsDir():
			err = d.root.Mkdir(into, info.Mode().Perm())
		case info.Mode().IsRegular():
			err = d.copyFile(at, into, info.Mode().Perm())
		default:
			return nil
		}
		if s, ok := info.Sys().(*syscall.Stat_t); ok && err == nil {
			err = d.root.Lchown(into, int(s.Uid), int(s.Gid))
		}
		return err
	})
}

func (d *Directory) copyFile(from, into string, mode fs.FileMode) error {
	in, err := d.root.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }() // it was only read
	out, err := d.root.OpenFile(into, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// Close closes the directory.
func (d *Directory) Close() error { return d.root.Close() }

// identity identifies a directory by its file system and inode number.
func identity(info fs.FileInfo) string {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return fmt.Sprintf("%d:%d", s.Dev, s.Ino)
	}
	return ""
}
