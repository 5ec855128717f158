package disk

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/lockquake/lockquake/chaos/disk"
	"github.com/lockquake/lockquake/internal/agent"
	"github.com/lockquake/lockquake/internal/agent/datadir"
	"github.com/lockquake/lockquake/internal/agent/proc"
	"github.com/lockquake/lockquake/internal/clock"
)

// The files that show what a power loss took: one was synced before the server started, the other is written without a
// sync.
const (
	syncedFile   = ".lockquake-synced"
	unsyncedFile = ".lockquake-unsynced"
)

// Of FS_IOC_SHUTDOWN, which ext4 took over from XFS: _IOR('X', 125, __u32), with 2 for "do not write the log".
const (
	fsShutdown   = 0x8004587d
	shutNoFlush  = 2
	markerLength = 64
)

// standingDisk returns the disk that an order names.
func standingDisk(use disk.Use) (*loopDisk, error) {
	found, ok := disks.Load(use.Disk)
	if !ok {
		return nil, fmt.Errorf("there is no disk %q", use.Disk)
	}
	return found.(*loopDisk), nil
}

// marker returns the content of the file by that name.
func marker(name string) []byte { return fmt.Appendf(nil, "%-*s", markerLength, name) }

func doMark(ctx context.Context, _ agent.Call, use disk.Use) (any, error) {
	d, err := standingDisk(use)
	if err != nil {
		return nil, err
	}
	return nil, d.mounted(ctx, func() error {
		if err := os.Remove(filepath.Join(d.at, unsyncedFile)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		f, err := os.OpenFile(filepath.Join(d.at, syncedFile), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o644)
		if err != nil {
			return err
		}
		_, err = f.Write(marker(syncedFile))
		return errors.Join(err, f.Sync(), f.Close())
	})
}

// doCut cuts the power. Between the shutdown of the file system and the SIGKILL the server can only notice that its
// disk is gone.
func doCut(_ context.Context, c agent.Call, use disk.Use) (any, error) {
	if _, err := standingDisk(use); err != nil {
		return nil, err
	}
	path, err := withinRoot(c.Process, use.Dir)
	if err != nil {
		return nil, err
	}
	dir, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open the data directory: %w", proc.Absent(err))
	}
	defer func() { _ = dir.Close() }()
	if !c.Process.Running() {
		return nil, proc.ErrNoProcess
	}
	family, err := proc.Descendants(c.Process.PID)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(path, unsyncedFile), marker(unsyncedFile), 0o644); err != nil {
		return nil, fmt.Errorf("write a file that is not synced: %w", err)
	}
	var out disk.Cut
	if err := unix.IoctlSetPointerInt(int(dir.Fd()), fsShutdown, shutNoFlush); err != nil {
		return nil, fmt.Errorf("shut the file system of the data directory down: %w", err)
	}
	out.Shut = clock.Now()
	if err = signalled(c.Process, "KILL", func() error { return c.Process.Signal("KILL") }); errors.Is(err,
		proc.ErrNoProcess) {
		err = nil // it noticed that its disk is gone, and ended before the signal
	}
	out.Killed = clock.Now()
	for _, pid := range family[1:] { // a child of a dead server could wait forever; a power loss leaves none
		if failed := unix.Kill(pid, unix.SIGKILL); failed != nil && !errors.Is(failed, unix.ESRCH) {
			err = errors.Join(err, fmt.Errorf("kill its descendant %d: %w", pid, failed))
		}
	}
	return out, err
}

func doLook(ctx context.Context, _ agent.Call, use disk.Use) (any, error) {
	d, err := standingDisk(use)
	if err != nil {
		return nil, err
	}
	if err := d.idle(ctx); err != nil {
		return nil, err
	}
	// The device stays open meanwhile, and the kernel may still cache blocks that never reached it.
	if err := unix.IoctlSetInt(int(d.held.Fd()), unix.BLKFLSBUF, 0); err != nil {
		return nil, fmt.Errorf("forget the blocks of %s: %w", d.name, err)
	}
	var out disk.Seen
	err = d.mounted(ctx, func() error {
		out.Synced, out.Unsynced = d.has(syncedFile), d.has(unsyncedFile)
		dir, err := datadir.Open(d.at)
		if err != nil {
			return err
		}
		out.Listing, err = dir.List()
		return errors.Join(err, dir.Close())
	})
	return out, err
}

// has reports whether a marker's file has its content.
func (d *loopDisk) has(name string) bool {
	b, err := os.ReadFile(filepath.Join(d.at, name))
	return err == nil && string(b) == string(marker(name))
}

// mounted runs f while the disk is mounted at d.at, visible to f alone: on a thread with its own mount namespace, which
// ends with it. The mount replays the log, like the first mount after a power loss.
func (d *loopDisk) mounted(ctx context.Context, f func() error) error {
	if err := d.idle(ctx); err != nil {
		return err
	}
	var err error
	proc.OnOwnThread(func() { err = d.mountedHere(f) })
	return errors.Join(err, d.idle(ctx))
}

// mountedHere leaves the calling thread in its own mount namespace.
func (d *loopDisk) mountedHere(f func() error) error {
	if err := ownMounts(); err != nil {
		return err
	}
	if err := unix.Mount(d.path, d.at, "ext4", 0, ""); err != nil {
		return fmt.Errorf("mount %s: %w", d.name, err)
	}
	err := f()
	if failed := unix.Unmount(d.at, 0); failed != nil {
		err = errors.Join(err, fmt.Errorf("unmount %s: %w", d.name, failed))
	}
	return err
}

// ownMounts gives the calling thread its own mount namespace.
func ownMounts() error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("make a mount namespace: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("keep mounts from spreading: %w", err)
	}
	return nil
}
