package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// DoData is the order that looks into the data directory of a process, and empties it: DataArgs, answered with Listing. What
// is held stays open under the order's key until it is undone, so that it can be looked into when the process is gone.
const DoData = "data"

// What DataArgs asks for.
const (
	DataHold  = "hold"  // open the directory of a process that runs, and list it
	DataList  = "list"  // list what is held under the key
	DataEmpty = "empty" // remove everything from what is held under the key, and list it
)

// DataArgs says what to do with which directory.
type DataArgs struct {
	Act string `json:"act"`
	Dir string `json:"dir,omitempty"` // as the process sees it; for DataHold
}

// Listing is what a directory holds.
type Listing struct {
	Entries int    `json:"entries"` // files and directories at any depth
	Bytes   int64  `json:"bytes"`   // in files
	ID      string `json:"id"`      // equal for two looks at one directory; "" where the system does not tell
}

// Directory is a directory held open: it can be looked into wherever it is mounted, and after whoever had it is gone.
type Directory struct{ root *os.Root }

// OpenDirectory opens the directory at a path of this process.
func OpenDirectory(path string) (*Directory, error) {
	r, err := os.OpenRoot(path)
	if err != nil {
		return nil, fmt.Errorf("open the data directory: %w", err)
	}
	return &Directory{r}, nil
}

// List counts what the directory holds now. What comes and goes meanwhile may be counted or not.
func (d *Directory) List() (Listing, error) {
	info, err := d.root.Stat(".")
	if err != nil {
		return Listing{}, fmt.Errorf("look at the data directory: %w", err)
	}
	out := Listing{ID: identity(info)}
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

// withinRoot is a path of a process as a process outside it may open it.
func withinRoot(p Process, dir string) (string, error) {
	if !filepath.IsAbs(dir) || strings.Contains(dir, "..") || filepath.Clean(dir) == "/" {
		return "", fmt.Errorf("%q cannot be a data directory", dir)
	}
	return fmt.Sprintf("/proc/%d/root%s", p.PID, filepath.Clean(dir)), nil
}
