// Package disk removes data of processes, delays their calls to fsync, and makes disks whose power can be cut.
package disk

import (
	"bytes"
	"compress/gzip"
	"context"
	_ "embed" // the empty file system
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lockquake/lockquake/chaos/disk"
	"github.com/lockquake/lockquake/internal/agent"
	"github.com/lockquake/lockquake/internal/clock"
)

// Mechanism returns the mechanism for disks.
func Mechanism() agent.Mechanism {
	return agent.Mechanism{
		Orders: map[string]agent.Handler{
			disk.DoCut:    {Do: agent.Takes(doCut)},
			disk.DoData:   {Do: agent.Takes(doData)},
			disk.DoDisk:   {Do: agent.Takes(doDisk), Machine: true},
			disk.DoLook:   {Do: agent.Takes(doLook), Machine: true},
			disk.DoMark:   {Do: agent.Takes(doMark), Machine: true},
			disk.DoSynced: {Do: doSynced},
			disk.DoSyncs:  {Do: agent.Takes(doSyncs)},
		},
		Signal: signalled,
	}
}

// loopDisk is a loop device over an unnamed file. Both vanish when no process has them open any more: the device is
// mounted for a server, and the agent holds it open between two starts. So nothing has to be swept, whichever process
// dies.
//
// Example: power-loss on redis-1. Before its start a file was written to the disk and synced. At the cut a second one
// is written without a sync, the file system is shut down without flushing its log, and the server is killed. Mounted
// again, the disk has the first file and not the second: unsynced writes of redis-1 are lost in the same way.
type loopDisk struct {
	name string   // of the device, such as loop3
	path string   // of the device, as the agent sees it
	at   string   // where the agent may mount it for itself
	held *os.File // the device, for reading
	file string   // the kernel's name of the file behind it
}

// disks are the existing disks, by key.
var disks sync.Map // string -> *loopDisk

// emptyExt4 is an empty file system of 1 GiB: the number and content of each block of 4 KiB that is not all zero. It
// was made by
//
//	mke2fs -t ext4 -b 4096 -N 16384 -J size=16 -m 0 -E lazy_itable_init=1,nodiscard,root_owner=0:0 \
//	  -L lockquake -U 6c6f636b-7175-616b-6500-000000000000
//	debugfs -w -R 'rmdir lost+found'
//
// It is embedded so that no program is needed to make one. lost+found is removed because a container's image must find
// its volume empty.
//
//go:embed ext4.gz
var emptyExt4 []byte

const (
	diskSize  = 1 << 30
	diskBlock = 4096
)

// idleTime bounds the wait until a disk is not mounted any more.
const idleTime = 10 * time.Second

func doDisk(_ context.Context, c agent.Call, args disk.Args) (any, error) {
	c.Stand(func(ctx context.Context) (any, error) {
		found, ok := disks.LoadAndDelete(c.Key)
		if !ok {
			return nil, nil //nolint:nilnil // an undo need not have anything to say
		}
		return nil, found.(*loopDisk).close(ctx)
	})
	d, err := newDisk(args)
	if err != nil {
		return nil, err
	}
	disks.Store(c.Key, d)
	return disk.Made{Device: "/dev/" + d.name}, nil
}

// newDisk makes the file and puts a loop device over it.
func newDisk(args disk.Args) (*loopDisk, error) {
	file, err := namelessFile(args.Dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // the device keeps it
	if err := writeExt4(file); err != nil {
		return nil, err
	}
	control, err := os.OpenFile(filepath.Join(args.Dev, "loop-control"), os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("loop devices: %w", err)
	}
	defer func() { _ = control.Close() }()
	for range 32 {
		n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return nil, fmt.Errorf("find a free loop device: %w", err)
		}
		d := &loopDisk{name: "loop" + strconv.Itoa(n), at: args.Dir}
		d.path = filepath.Join(args.Dev, d.name)
		switch err := d.attach(file); {
		case errors.Is(err, unix.EBUSY):
			continue // another took it meanwhile
		case err != nil:
			return nil, err
		}
		return d, nil
	}
	return nil, errors.New("find a free loop device: each was taken by another")
}

// attach configures the device, and then holds it for reading only: some kernels mount no device that is open for
// writing.
func (d *loopDisk) attach(file *os.File) error {
	device, err := os.OpenFile(d.path, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("open loop device: %w", err)
	}
	defer func() { _ = device.Close() }()
	config := unix.LoopConfig{Fd: uint32(file.Fd()), Size: diskBlock}
	config.Info.Flags = unix.LO_FLAGS_AUTOCLEAR
	copy(config.Info.File_name[:], "lockquake")
	if err := unix.IoctlLoopConfigure(int(device.Fd()), &config); err != nil {
		return fmt.Errorf("set up %s: %w", d.name, err)
	}
	if d.held, err = os.Open(d.path); err != nil {
		return err
	}
	d.file = d.backing()
	return nil
}

// backing returns the kernel's name of the file behind the device; "" if there is none.
func (d *loopDisk) backing() string {
	b, _ := os.ReadFile("/sys/block/" + d.name + "/loop/backing_file")
	return string(b)
}

// close closes the device, which vanishes with its last mount.
func (d *loopDisk) close(ctx context.Context) error {
	if err := d.held.Close(); err != nil {
		return err
	}
	for ctx.Err() == nil {
		if b := d.backing(); b == "" || b != d.file {
			return nil
		}
		time.Sleep(5 * time.Millisecond)
	}
	return fmt.Errorf("%s is still there: it is mounted elsewhere", d.name)
}

// namelessFile makes a file that vanishes with its last open descriptor.
func namelessFile(dir string) (*os.File, error) {
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err == nil {
		return os.NewFile(uintptr(fd), "disk"), nil
	}
	f, err := os.CreateTemp(dir, "disk-") // a file system without O_TMPFILE
	if err != nil {
		return nil, fmt.Errorf("make the disk's file: %w", err)
	}
	return f, os.Remove(f.Name())
}

// writeExt4 writes the empty file system.
func writeExt4(f *os.File) error {
	if err := f.Truncate(diskSize); err != nil {
		return fmt.Errorf("make the disk's file: %w", err)
	}
	r, err := gzip.NewReader(bytes.NewReader(emptyExt4))
	if err != nil {
		return err
	}
	record := make([]byte, 4+diskBlock)
	for {
		_, err := io.ReadFull(r, record)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			_, err = f.WriteAt(record[4:], int64(binary.LittleEndian.Uint32(record))*diskBlock)
		}
		if err != nil {
			return fmt.Errorf("write the empty file system: %w", err)
		}
	}
}

// idle waits until the device is not mounted: until then a new mount gets the file system that was shut down.
func (d *loopDisk) idle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, idleTime)
	defer cancel()
	for {
		fd, err := unix.Open(d.path, unix.O_RDONLY|unix.O_EXCL|unix.O_CLOEXEC, 0)
		if err == nil {
			return unix.Close(fd)
		}
		if !errors.Is(err, unix.EBUSY) {
			return fmt.Errorf("open %s: %w", d.name, err)
		}
		if clock.Sleep(ctx, 2*time.Millisecond) != nil {
			return fmt.Errorf("%s is still mounted: %w", d.name, ctx.Err())
		}
	}
}
