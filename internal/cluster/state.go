package cluster

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

// ownerFile is the state file in a run's directory.
const ownerFile = "owner"

// runDir makes the directory of a run, with the owner in it by which Sweep knows whose it is.
func runDir(o owner.Mark) (string, error) {
	dir, err := stateDir()
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, o.Run)
	if err := os.Mkdir(path, 0o700); err != nil {
		return "", fmt.Errorf("make the run's directory: %w", err)
	}
	err = os.Chmod(path, stateMode()) // whatever the umask is
	if err == nil {
		err = os.WriteFile(filepath.Join(path, ownerFile), []byte(o.Tag()+"\n"), 0o600)
	}
	if err != nil {
		return "", errors.Join(fmt.Errorf("write the run's state: %w", err), os.RemoveAll(path))
	}
	return path, nil
}

// Scratch makes a directory for what is needed only while this process runs, such as logs of a node that answers a question. It is removed by
// remove, or by Sweep where this process was killed before that.
func Scratch(name string) (dir string, remove func() error, err error) {
	if dir, err = runDir(owner.Self(name+"-"+strings.ToLower(rand.Text()[:8]), false)); err != nil {
		return "", nil, err
	}
	return dir, func() error { return os.RemoveAll(dir) }, nil
}

// stateDir returns this user's directory for the state and data of runs, and makes it. Where another user has taken its name, it is one whose name
// nobody can know before.
func stateDir() (string, error) {
	dir := stateDirName()
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("make the state directory: %w", err)
	}
	if !ours(dir) {
		others, err := stateDirs()
		if len(others) > 0 {
			dir = others[0]
		} else if err == nil {
			dir, err = os.MkdirTemp(filepath.Dir(dir), filepath.Base(dir)+"-*")
		}
		if err != nil {
			return "", fmt.Errorf("make the state directory: %w", err)
		}
	}
	if err := os.Chmod(dir, stateMode()); err != nil {
		return "", fmt.Errorf("open the state directory for servers: %w", err)
	}
	return dir, nil
}

// ours reports whether a directory is there and this user's alone.
func ours(dir string) bool {
	info, err := os.Lstat(dir)
	return err == nil && info.IsDir() && info.Mode().Perm()&^stateMode() == 0 && ownedByUs(info)
}

// stateDirs lists the state directories that are there and this user's alone: that of the usual name, and those that took its place.
func stateDirs() (dirs []string, err error) {
	usual := stateDirName()
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

// stateOf returns where the state of a run is, or would be.
func stateOf(run string) string {
	dirs, _ := stateDirs() // else it is told when they are swept
	if i := slices.IndexFunc(dirs, func(dir string) bool { return isDir(filepath.Join(dir, run)) }); i >= 0 {
		return filepath.Join(dirs[i], run)
	}
	return filepath.Join(stateDirName(), run)
}

func isDir(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.IsDir()
}

// stateMode is the mode of the state directory and of those of runs in it: this user's alone. Where servers are another user, that one passes
// through on the way to its own data, and can neither list nor write.
func stateMode() fs.FileMode {
	if identity.OfServers("") != 0 {
		return 0o711
	}
	return 0o700
}

// stateDirName is the usual name of the state directory.
func stateDirName() string {
	tmp := os.TempDir()
	if real, err := filepath.EvalSymlinks(tmp); err == nil {
		tmp = real // what is done in the name of a target follows no links
	}
	return filepath.Join(tmp, fmt.Sprintf("lockquake-%d", os.Getuid()))
}

// stateEntries lists the directories of runs in this user's state directories, which need not be there.
func stateEntries() (paths []string, err error) {
	dirs, err := stateDirs()
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

// recorded lists the local runs in this user's state directories, by their ids. Nothing else proves that a process belongs to a run: anybody
// can write the same into an environment.
func recorded() (map[string]owner.Mark, error) {
	paths, err := stateEntries()
	out := make(map[string]owner.Mark, len(paths))
	for _, path := range paths {
		if o, ok := readOwner(path); ok && o.Run == filepath.Base(path) {
			out[o.Run] = o
		}
	}
	return out, err
}

func readOwner(dir string) (owner.Mark, bool) {
	b, err := os.ReadFile(filepath.Join(dir, ownerFile))
	if err != nil {
		return owner.Mark{}, false
	}
	return owner.Parse(strings.TrimSpace(string(b)))
}

// abandoned tells whether a directory without owner is no run that is just beginning.
func abandoned(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && time.Since(info.ModTime()) > time.Minute
}
