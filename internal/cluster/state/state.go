// Package state is the directories in which this user keeps state and data of runs, each with the mark of whose it is.
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

// Make makes the directory of a run, with the owner in it by which Sweep knows whose it is.
func Make(o owner.Mark) (string, error) {
	dir, err := Dir()
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, o.Run)
	if err := os.Mkdir(path, 0o700); err != nil {
		return "", fmt.Errorf("make the run's directory: %w", err)
	}
	err = os.Chmod(path, mode()) // whatever the umask is
	if err == nil {
		err = os.WriteFile(filepath.Join(path, OwnerFile), []byte(o.Tag()+"\n"), 0o600)
	}
	if err != nil {
		return "", errors.Join(fmt.Errorf("write the run's state: %w", err), os.RemoveAll(path))
	}
	return path, nil
}

// Scratch makes a directory for what is needed only while this process runs, such as logs of a node that answers a
// question. It is removed by remove, or by Sweep where this process was killed before that.
func Scratch(name string) (dir string, remove func() error, err error) {
	if dir, err = Make(owner.Self(name+"-"+strings.ToLower(rand.Text()[:8]), false)); err != nil {
		return "", nil, err
	}
	return dir, func() error { return os.RemoveAll(dir) }, nil
}

// Dir returns this user's directory for the state and data of runs, and makes it. Where another user has taken its
// name, it is one whose name nobody can know before.
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

// ours reports whether a directory is there and this user's alone.
func ours(dir string) bool {
	info, err := os.Lstat(dir)
	return err == nil && info.IsDir() && info.Mode().Perm()&^mode() == 0 && ownedByUs(info)
}

// existing lists the state directories that are there and this user's alone: that of the usual name, and those that
// took its place.
func existing() (dirs []string, err error) {
	usual := usualDir()
	entries, err := os.ReadDir(filepath.Dir(usual))
	if err != nil {
		return nil, fmt.Errorf("look for the state directory: %w", err)
	}
	for _, e := range entries { // by name: the usual one comes first
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

// Of returns where the state of a run is, or would be.
func Of(run string) string {
	dirs, _ := existing() // else it is told when they are swept
	if i := slices.IndexFunc(dirs, func(dir string) bool { return isDir(filepath.Join(dir, run)) }); i >= 0 {
		return filepath.Join(dirs[i], run)
	}
	return filepath.Join(usualDir(), run)
}

func isDir(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.IsDir()
}

// mode is the mode of the state directory and of those of runs in it: this user's alone. Where servers are another
// user, that one passes through on the way to its own data, and can neither list nor write.
func mode() fs.FileMode {
	if identity.OfServers("") != 0 {
		return 0o711
	}
	return 0o700
}

// usualDir is the usual name of the state directory.
func usualDir() string {
	tmp := os.TempDir()
	if real, err := filepath.EvalSymlinks(tmp); err == nil {
		tmp = real // what is done in the name of a target follows no links
	}
	return filepath.Join(tmp, fmt.Sprintf("lockquake-%d", os.Getuid()))
}

// Entries lists the directories of runs in this user's state directories, which need not be there.
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

// Recorded lists the local runs in this user's state directories, by their ids. Nothing else proves that a process
// belongs to a run: anybody can write the same into an environment.
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

// Abandoned reports whether a directory without owner is no run that is just beginning.
func Abandoned(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && time.Since(info.ModTime()) > time.Minute
}
