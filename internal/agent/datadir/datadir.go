// Package datadir looks into the data directories of nodes, empties them, and puts copies of them aside and back.
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

// Empty removes everything from the directory, the copy that was put aside too, and leaves the directory itself.
func (d *Directory) Empty() error { return d.remove(func(string) bool { return true }) }

// remove removes the entries that are chosen.
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

// aside is where a copy of the data is, within the directory: whoever can open that has no other room that is as large,
// and outlives the process.
const aside = ".lockquake-aside"

// ErrNoCopy says that there is nothing to restore.
var ErrNoCopy = errors.New("no copy of the data was put aside")

// Save puts a copy of everything aside, in the place of an earlier one.
func (d *Directory) Save() error {
	if err := d.root.RemoveAll(aside); err != nil {
		return fmt.Errorf("remove the earlier copy: %w", err)
	}
	if err := d.root.Mkdir(aside, 0o700); err != nil {
		return fmt.Errorf("put a copy of the data aside: %w", err)
	}
	return d.copy(".", aside)
}

// Restore replaces everything by the copy that was put aside, and keeps that. It leaves node.RestoredMark.
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

// copy copies what is in one directory into another, with owners and modes. Whatever is neither a file nor a directory,
// such as a socket, is left out.
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

// Close lets the directory go.
func (d *Directory) Close() error { return d.root.Close() }

// identity names a directory by its file system and number there.
func identity(info fs.FileInfo) string {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return fmt.Sprintf("%d:%d", s.Dev, s.Ino)
	}
	return ""
}
