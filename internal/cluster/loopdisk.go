package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/internal/agent"
	"github.com/lockquake/lockquake/internal/clock"
)

var _ chaos.PowerCutter = (*Node)(nil)

// loopDisk is a disk that the agent made for one node: ext4 in a file that has no name, behind a loop device. It is mounted where the
// node's process is and for as long as that lives: by the engine as the container's volume, or in mounts of the process's own. The agent
// holds the device meanwhile. So it is gone when the node and the agent are, however they end.
type loopDisk struct {
	agent  *agent.Client
	key    string
	device string
}

// makeDisk has the agent make a disk. Where the agent may not, the error says what it was.
func makeDisk(ctx context.Context, a *agent.Client, node string, args agent.DiskArgs) (*loopDisk, error) {
	if a == nil {
		return nil, chaos.Unavailable{What: string(chaos.LoopDisk), Reason: "the agent, which makes it, was not started; the run's log says why"}
	}
	d := &loopDisk{agent: a, key: "loop-disk/" + node}
	var made agent.Disk
	if err := a.Order(ctx, agent.Order{Do: agent.DoDisk, Key: d.key, Args: args}, &made); err != nil {
		return nil, chaos.Unavailable{What: string(chaos.LoopDisk), Reason: err.Error()}
	}
	if !strings.HasPrefix(made.Device, "/dev/loop") {
		return nil, chaos.Unavailable{What: string(chaos.LoopDisk), Reason: fmt.Sprintf("the agent made the device %q", made.Device)}
	}
	d.device = made.Device
	return d, nil
}

// mark leaves the file on the disk that is synced, before each start.
func (d *loopDisk) mark(ctx context.Context) error {
	if err := d.order(ctx, agent.DoMark, nil); err != nil {
		return fmt.Errorf("prepare the disk: %w", err)
	}
	return nil
}

func (d *loopDisk) order(ctx context.Context, do string, result any) error {
	return d.agent.Order(ctx, agent.Order{Do: do, Key: d.key + "/" + do, Args: agent.DiskUse{Disk: d.key}}, result)
}

// CutPower has the agent shut the node's file system down under it and kill it, and then look at what is left on the disk.
func (n *Node) CutPower(ctx context.Context) (chaos.PowerLost, error) {
	d, exited := n.disk, n.Exited()
	if d == nil {
		return chaos.PowerLost{}, chaos.Unavailable{What: string(chaos.CanCutPower), Reason: n.Name() + " has no disk of its own"}
	}
	if !n.Running() {
		return chaos.PowerLost{}, fmt.Errorf("cut the power of %s: %w", n.Name(), agent.ErrNoProcess)
	}
	var cut agent.Cut
	if err := n.order(ctx, agent.Order{Do: agent.DoCut, Args: agent.DiskUse{Disk: d.key, Dir: n.place.Dir}}, &cut); err != nil {
		return chaos.PowerLost{}, err
	}
	n.thawAll(ctx)
	ctx, cancel := context.WithTimeout(ctx, actTimeout)
	defer cancel()
	select {
	case <-exited:
	case <-ctx.Done():
		return chaos.PowerLost{}, fmt.Errorf("%s did not end when its power was cut: %w", n.Name(), ctx.Err())
	}
	var found agent.DiskSeen
	if err := d.order(ctx, agent.DoLook, &found); err != nil {
		return chaos.PowerLost{}, fmt.Errorf("the disk of %s after its power was cut: %w", n.Name(), err)
	}
	return chaos.PowerLost{
		Synced: found.Synced, Unsynced: found.Unsynced, Held: listed(found.Listing), Gap: time.Duration(cut.Killed - cut.Shut), Time: clock.Now(),
	}, nil
}

// Where the agent's container has what it needs to make disks.
const (
	disksInAgent   = "/lockquake-disks"
	devicesInAgent = "/lockquake-dev"
)

// disksForAgent lets the agent's container make loop devices: it may use them and no other device, and has a volume for their files.
func disksForAgent(h *container.HostConfig) {
	h.DeviceCgroupRules = append(h.DeviceCgroupRules, "c 10:237 rw", "b 7:* rw") // loop-control; loop devices
	h.Mounts = append(h.Mounts, mount.Mount{Type: mount.TypeBind, Source: "/dev", Target: devicesInAgent, ReadOnly: true},
		mount.Mount{Type: mount.TypeVolume, Target: disksInAgent})
}

// diskVolume is the container's data directory on the disk: the engine mounts it for as long as the container runs.
func diskVolume(device string) mount.Mount {
	return mount.Mount{Type: mount.TypeVolume, Target: dataDir, VolumeOptions: &mount.VolumeOptions{
		DriverConfig: &mount.Driver{Name: "local", Options: map[string]string{"type": "ext4", "device": device}},
	}}
}

// loopDiskIn prepares a container's disk. The agent must be there before the container, and is waited for.
func loopDiskIn(ctx context.Context, r *dockerRun, n *Node) (fitting, error) {
	select {
	case <-r.agentUp:
	case <-ctx.Done():
		return fitting{}, ctx.Err()
	}
	d, err := makeDisk(ctx, r.agent, n.Name(), agent.DiskArgs{Dir: disksInAgent, Dev: devicesInAgent})
	if err != nil {
		return fitting{}, err
	}
	n.disk = d
	return fitting{disk: d.device, before: d.mark}, nil
}

// loopDiskHere prepares the disk of a process of this machine, when it is started first: the agent is there by then.
func loopDiskHere(_ context.Context, r *localRun, n *Node) (fitting, error) {
	return fitting{before: func(ctx context.Context) error {
		if n.disk == nil {
			d, err := makeDisk(ctx, r.agent, n.Name(), agent.DiskArgs{Dir: r.dir, Dev: "/dev"})
			if err != nil {
				return err
			}
			n.disk = d
		}
		return n.disk.mark(ctx)
	}}, nil
}

// onDisk is the command of a process that runs on the node's disk: lockquake mounts it for itself alone and becomes the program.
func (p *process) onDisk(path string, argv []string) (string, []string, error) {
	if p.node.disk == nil {
		return path, argv, nil
	}
	self, err := selfProgram(p.run.options.Self)
	if err != nil {
		return "", nil, err
	}
	return self, append([]string{SelfProgram, "node", "on-disk", p.node.disk.device, p.node.place.Dir, path}, argv...), nil
}

// canLoop tells why this machine's kernel makes no such disks; nil where it may.
func canLoop() error {
	_, control := os.Stat("/dev/loop-control")
	known, err := os.ReadFile("/proc/filesystems")
	if !strings.Contains(string(known), "\text4\n") {
		err = errors.Join(err, errors.New("the kernel has no ext4"))
	}
	if err = errors.Join(control, err); err != nil {
		return chaos.Unavailable{What: string(chaos.LoopDisk), Reason: strings.ReplaceAll(err.Error(), "\n", "; ") + "; it takes loop devices and ext4"}
	}
	return nil
}

// disksHere tells why processes of this machine can have no such disks.
func disksHere() error {
	if os.Geteuid() != 0 {
		return chaos.Unavailable{What: string(chaos.LoopDisk), Reason: "only root makes loop devices and mounts; use --provider docker"}
	}
	return canLoop()
}

// disksAt tells the same of an engine. Of one on another machine nothing is known before it is tried.
func disksAt(daemon string) error {
	if remote(daemon) {
		return nil
	}
	if _, err := os.Stat(filepath.Join("/proc/self/ns", "mnt")); err != nil {
		return nil //nolint:nilerr // no Linux here: the engine is in a virtual machine
	}
	return canLoop()
}
