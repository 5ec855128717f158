package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// ownerFile is the state file in a run's directory.
const ownerFile = "owner"

// runDir makes the directory of a run, with the owner in it by which Sweep knows whose it is.
func runDir(o owner) (string, error) {
	dir, err := stateDir()
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, o.Run)
	if err := os.Mkdir(path, 0o700); err != nil {
		return "", fmt.Errorf("make the run's directory: %w", err)
	}
	if err := os.WriteFile(filepath.Join(path, ownerFile), []byte(o.tag()+"\n"), 0o600); err != nil {
		return "", errors.Join(fmt.Errorf("write the run's state: %w", err), os.RemoveAll(path))
	}
	return path, nil
}

// stateDir returns this user's directory for the state and data of local runs. It refuses one that another user made.
func stateDir() (string, error) {
	dir := stateDirName()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("make the state directory: %w", err)
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return "", fmt.Errorf("look at the state directory: %w", err)
	}
	if !info.IsDir() || info.Mode().Perm()&0o077 != 0 || !ownedByUs(info) {
		return "", fmt.Errorf("the state directory %s is not this user's alone; remove it or set TMPDIR", dir)
	}
	return dir, nil
}

func stateDirName() string {
	return filepath.Join(os.TempDir(), fmt.Sprintf("lockquake-%d", os.Getuid()))
}
