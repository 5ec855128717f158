// Package state has the directories in which this user keeps the state and data of runs, each with the mark of its
// owner.
package state

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/lockquake/lockquake/internal/cluster/identity"
	"github.com/lockquake/lockquake/internal/cluster/owner"
)

// OwnerFile is the state file in a run's directory.
const OwnerFile = "owner"

// Make makes the directory of a run, with the owner's mark for Sweep.
func Make(o owner.Mark) (string, error) {
	dir, err := Dir()
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, o.Run)
	if err := os.Mkdir(path, 0o700); err != nil {
		return "", fmt.Errorf("make the run's directory: %w", err)
	}
	err = os.Chmod(path, mode()) // independent of the umask
	if err == nil {
		err = os.WriteFile(filepath.Join(path, OwnerFile), []byte(o.Tag()+"\n"), 0o600)
	}
	if err != nil {
		return "", errors.Join(fmt.Errorf("write the run's state: %w", err), os.RemoveAll(path))
	}
	return path, nil
}

// Scratch makes a directory for files needed only while this process runs, such as logs of a node that answers a
// question. remove removes it, or Sweep if this process was killed before.
func Scratch(name string) (dir string, remove func() error, err error) {
	if dir, err = Make(owner.Self(name+"-"+strings.ToLower(rand.Text()[:8]), false)); err != nil {
		return "", nil, err
	}
	return dir, func() error { return os.RemoveAll(dir) }, nil
}

// Dir makes and returns this user's directory for the state and data of runs. If another user has taken its name, it
// gets an unpredictable one.
func Dir() (string, error) {
	dir := usualDir()
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("make the state directory: %w", err)
	}
	if !ours(dir) {
		others, err := existing()
		if len(others) > 0 {
			dir = others[0]
		} else if err == nil {
			dir, err = os.MkdirTemp(filepath.Dir(dir), filepath.Base(dir)+"-*")
		}
		if err != nil {
			return "", fmt.Errorf("make the state directory: %w", err)
		}
	}
	if err := os.Chmod(dir, mode()); err != nil {
		return "", fmt.Errorf("open the state directory for servers: %w", err)
	}
	return dir, nil
}

// ours reports whether a directory exists and belongs to this user alone.
func ours(dir string) bool {
	info, err := os.Lstat(dir)
	return err == nil && info.IsDir() && info.Mode().Perm()&^mode() == 0 && ownedByUs(info)
}

// existing lists the state directories that exist and belong to this user alone: the usual one, and its replacements.
func existing() (dirs []string, err error) {
	usual := usualDir()
	entries, err := os.ReadDir(filepath.Dir(usual))
	if err != nil {
		return nil, fmt.Errorf("look for the state directory: %w", err)
	}
	for _, e := range entries { // sorted by name: the usual one comes first
		name := e.Name()
		if name != filepath.Base(usual) && !strings.HasPrefix(name, filepath.Base(usual)+"-") {
			continue
		}
		if path := filepath.Join(filepath.Dir(usual), name); ours(path) {
			dirs = append(dirs, path)
		}
	}
	return dirs, nil
}

// Of returns the path of a run's state, whether it exists or not.
func Of(run string) string {
	dirs, _ := existing() // an error is reported when they are swept
	if i := slices.IndexFunc(dirs, func(dir string) bool { return isDir(filepath.Join(dir, run)) }); i >= 0 {
		return filepath.Join(dirs[i], run)
	}
	return filepath.Join(usualDir(), run)
}

func isDir(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.IsDir()
}

// mode returns the mode of the state directory and of the runs' directories in it: only this user has access. If
// servers run as another user, that user may pass through to its own data, but neither list nor write.
func mode() fs.FileMode {
	if identity.OfServers("") != 0 {
		return 0o711
	}
	return 0o700
}

// usualDir returns the usual path of the state directory.
func usualDir() string {
	tmp := os.TempDir()
	if real, err := filepath.EvalSymlinks(tmp); err == nil {
		tmp = real // actions on behalf of a target follow no links
	}
	return filepath.Join(tmp, fmt.Sprintf("lockquake-%d", os.Getuid()))
}

// Entries lists the directories of runs in this user's state directories, which need not exist.
func Entries() (paths []string, err error) {
	dirs, err := existing()
	for _, dir := range dirs {
		entries, unread := os.ReadDir(dir)
		if unread != nil {
			err = errors.Join(err, fmt.Errorf("list the state directory: %w", unread))
		}
		for _, e := range entries {
			paths = append(paths, filepath.Join(dir, e.Name()))
		}
	}
	return paths, err
}

// Recorded returns the local runs in this user's state directories, by id. Nothing else proves that a process belongs
// to a run: any user can forge an environment.
func Recorded() (map[string]owner.Mark, error) {
	paths, err := Entries()
	out := make(map[string]owner.Mark, len(paths))
	for _, path := range paths {
		if o, ok := ReadOwner(path); ok && o.Run == filepath.Base(path) {
			out[o.Run] = o
		}
	}
	return out, err
}

// ReadOwner reads the mark in the directory of a run.
func ReadOwner(dir string) (owner.Mark, bool) {
	b, err := os.ReadFile(filepath.Join(dir, OwnerFile))
	if err != nil {
		return owner.Mark{}, false
	}
	return owner.Parse(strings.TrimSpace(string(b)))
}

// Abandoned reports whether a directory without owner is too old to be a run that is just starting.
func Abandoned(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && time.Since(info.ModTime()) > time.Minute
}
