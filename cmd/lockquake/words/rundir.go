package words

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/cli"
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/results/capacity"
)

// IsSweep reports whether a directory holds a sweep.
func IsSweep(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, capacity.File))
	return err == nil
}

// IsRunDir returns an error of one line if a directory is not that of a run.
func IsRunDir(dir string) error {
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return cli.Usagef("%s: no such directory; runs are in runs/SCENARIO/", dir)
	case err != nil:
		return err
	case !info.IsDir():
		return cli.Usagef("%s: not a directory; a run is a directory such as runs/etcd-holder-pause/latest", dir)
	}
	var missing []string
	wanted := []string{results.FileEnv, results.FileScenario, results.DirHistory}
	for _, f := range wanted {
		if _, err := os.Stat(filepath.Join(dir, f)); err != nil {
			missing = append(missing, f)
		}
	}
	switch len(missing) {
	case 0:
		return nil
	case len(wanted):
		return cli.Usagef("%s: not the directory of a run, it has no %s", dir, missing[0])
	}
	return fmt.Errorf("%w: %s: it is missing", history.ErrCorrupt, filepath.Join(dir, missing[0]))
}

// CompleteRunDir completes directories.
func CompleteRunDir(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return nil, cobra.ShellCompDirectiveFilterDirs
}

// RunDir returns the absolute path of a run's directory, with links such as `latest` resolved.
func RunDir(arg string) (string, error) {
	if err := IsRunDir(arg); err != nil {
		return "", err
	}
	return RealDir(arg)
}

// RealDir returns the absolute path of a directory, with links resolved.
func RealDir(arg string) (string, error) {
	dir, err := filepath.EvalSymlinks(arg)
	if err != nil {
		return "", err
	}
	return filepath.Abs(dir)
}

// OneRun requires exactly one argument, the directory of a run.
func OneRun(c *cobra.Command, args []string) error {
	if len(args) != 1 {
		return cli.Usagef("`%s` takes one argument, the directory of a run such as runs/etcd-holder-pause/latest; there are %d",
			c.CommandPath(), len(args))
	}
	return nil
}
