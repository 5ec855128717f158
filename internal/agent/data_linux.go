package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"syscall"
)

// kept are the directories that are held, by the keys of their orders.
var kept sync.Map // string -> *Directory

func doData(_ context.Context, c call) (any, error) {
	args, err := decode[DataArgs](c.args)
	if err != nil {
		return nil, err
	}
	if args.Act == DataHold {
		return holdData(c, args.Dir)
	}
	found, ok := kept.Load(c.key)
	if !ok {
		return nil, fmt.Errorf("no data directory is held under %q", c.key)
	}
	d := found.(*Directory)
	switch args.Act {
	case DataList:
		return d.List()
	case DataEmpty:
		if c.process.Running() {
			return nil, fmt.Errorf("pid %d still runs: its data is not taken from under it", c.process.PID)
		}
		err := d.Empty()
		list, failed := d.List()
		return list, errors.Join(err, failed)
	}
	return nil, fmt.Errorf("a data directory cannot be asked to %q", args.Act)
}

func holdData(c call, dir string) (any, error) {
	path, err := withinRoot(c.process, dir)
	if err != nil {
		return nil, err
	}
	c.stand(func(context.Context) (any, error) {
		if d, ok := kept.LoadAndDelete(c.key); ok {
			return nil, d.(*Directory).Close()
		}
		return nil, nil //nolint:nilnil // an undo need not have anything to say
	})
	d, err := OpenDirectory(path)
	if !c.process.Alive() { // the pid could have passed into other hands before it was opened
		if err == nil {
			err = d.Close()
		}
		return nil, errors.Join(ErrNoProcess, err)
	}
	if err != nil {
		return nil, err
	}
	kept.Store(c.key, d)
	return d.List()
}

// Running tells whether the process exists and has not ended: an unreaped one has.
func (p Process) Running() bool {
	fields, err := statFields(fmt.Sprintf("/proc/%d/stat", p.PID))
	return err == nil && fields[0][0] != 'Z' && fields[0][0] != 'X' && p.Alive()
}

// identity names a directory by its file system and number there.
func identity(info fs.FileInfo) string {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return fmt.Sprintf("%d:%d", s.Dev, s.Ino)
	}
	return ""
}
