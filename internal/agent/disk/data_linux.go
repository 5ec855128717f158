package disk

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"

	"github.com/lockquake/lockquake/chaos/disk"
	"github.com/lockquake/lockquake/internal/agent"
	"github.com/lockquake/lockquake/internal/agent/datadir"
	"github.com/lockquake/lockquake/internal/agent/proc"
)

// heldDirs are the open directories, by the keys of their orders.
var heldDirs sync.Map // string -> *datadir.Directory

func doData(_ context.Context, c agent.Call, args disk.DataArgs) (any, error) {
	if args.Act == disk.DataHold {
		return holdData(c, args.Dir)
	}
	found, ok := heldDirs.Load(c.Key)
	if !ok {
		return nil, fmt.Errorf("no data directory is held under %q", c.Key)
	}
	d := found.(*datadir.Directory)
	switch args.Act {
	case disk.DataList:
		return d.List()
	case disk.DataEmpty:
		return changed(c, d, d.Empty)
	case disk.DataSave:
		return changed(c, d, d.Save)
	case disk.DataRestore:
		return changed(c, d, d.Restore)
	}
	return nil, fmt.Errorf("unknown operation %q on a data directory", args.Act)
}

// changed changes the data of an ended process, and lists the result.
func changed(c agent.Call, d *datadir.Directory, do func() error) (any, error) {
	if c.Process.Running() {
		return nil, fmt.Errorf("pid %d still runs: its data is not touched", c.Process.PID)
	}
	err := do()
	list, failed := d.List()
	return list, errors.Join(err, failed)
}

func holdData(c agent.Call, dir string) (any, error) {
	path, err := withinRoot(c.Process, dir)
	if err != nil {
		return nil, err
	}
	c.Stand(func(context.Context) (any, error) {
		if d, ok := heldDirs.LoadAndDelete(c.Key); ok {
			return nil, d.(*datadir.Directory).Close()
		}
		return nil, nil //nolint:nilnil // an undo need not have anything to say
	})
	d, err := datadir.Open(path)
	if !c.Process.Alive() { // the pid could have been reused before it was opened
		if err == nil {
			err = d.Close()
		}
		return nil, errors.Join(proc.ErrNoProcess, err)
	}
	if err != nil {
		return nil, err
	}
	heldDirs.Store(c.Key, d)
	return d.List()
}

// withinRoot returns the path by which a process outside can open a process's path.
func withinRoot(p proc.Process, dir string) (string, error) {
	if !filepath.IsAbs(dir) || strings.Contains(dir, "..") || filepath.Clean(dir) == "/" {
		return "", fmt.Errorf("%q cannot be a data directory", dir)
	}
	return fmt.Sprintf("/proc/%d/root%s", p.PID, filepath.Clean(dir)), nil
}
