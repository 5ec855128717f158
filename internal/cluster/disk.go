package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/chaos/disk"
	"github.com/lockquake/lockquake/internal/agent"
	"github.com/lockquake/lockquake/internal/agent/datadir"
	"github.com/lockquake/lockquake/internal/agent/proc"
	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/internal/node"
)

// dataKeys numbers the keys of directories that the agent holds.
var dataKeys atomic.Int64

// Disk is the part of a node for faults of its disk and data directory.
type Disk struct {
	part
	loop *loopDisk // the disk of the data directory, if prepared
}

// HoldData opens the node's data directory: that of its Place, a volume (docker) or a directory of the run (local).
func (df *Disk) HoldData(ctx context.Context) (disk.Data, error) {
	if df.spec.Role != node.Server {
		return nil, chaos.Unavailable{What: string(disk.CanData), Reason: df.Name() + " keeps no data"}
	}
	a, err := df.orders.reach(ctx)
	if err != nil {
		here, ok := df.driver.(atHand)
		if !ok {
			return nil, err
		}
		d, err := datadir.Open(here.dataHere())
		if err != nil {
			return nil, err
		}
		return ownData{df.process, d}, nil
	}
	d := agentData{agent: a.agent, process: a.process, key: fmt.Sprintf("data-%d/%s", dataKeys.Add(1), df.Name())}
	if _, err := d.order(ctx, disk.DataArgs{Act: disk.DataHold, Dir: df.place.Dir}); err != nil {
		return nil, errors.Join(fmt.Errorf("data of %s: %w", df.Name(), err), d.Release(ctx))
	}
	return d, nil
}

// agentData is a directory that the agent holds open.
type agentData struct {
	agent   *agent.Client
	process proc.Process
	key     string
}

func (d agentData) order(ctx context.Context, args disk.DataArgs) (disk.Listing, error) {
	var out disk.Listing
	err := d.agent.Order(ctx, agent.Order{Do: disk.DoData, Process: d.process, Key: d.key, Args: args}, &out)
	return out, err
}

func (d agentData) List(ctx context.Context) (disk.Listing, error) {
	return d.order(ctx, disk.DataArgs{Act: disk.DataList})
}

func (d agentData) Lose(ctx context.Context) error {
	_, err := d.order(ctx, disk.DataArgs{Act: disk.DataEmpty})
	return err
}

func (d agentData) Save(ctx context.Context) error {
	_, err := d.order(ctx, disk.DataArgs{Act: disk.DataSave})
	return err
}

func (d agentData) Restore(ctx context.Context) error {
	_, err := d.order(ctx, disk.DataArgs{Act: disk.DataRestore})
	return err
}

func (d agentData) Release(ctx context.Context) error { return d.agent.Undo(ctx, d.key, nil) }

// ownData is a directory that the supervisor itself opens: it has child processes and no agent.
type ownData struct {
	process *Process
	*datadir.Directory
}

func (d ownData) List(context.Context) (disk.Listing, error) {
	return d.Directory.List()
}

func (d ownData) Lose(context.Context) error { return d.idle(d.Empty) }

func (d ownData) Save(context.Context) error { return d.idle(d.Directory.Save) }

func (d ownData) Restore(context.Context) error { return d.idle(d.Directory.Restore) }

// idle changes the data of a node that is not running.
func (d ownData) idle(do func() error) error {
	if d.process.Running() {
		return fmt.Errorf("%s still runs: its data is not touched", d.process.Name())
	}
	return do()
}

func (d ownData) Release(context.Context) error { return d.Close() }

// syncKey is the key prefix of orders to delay syncs.
const syncKey = "syncs-"

// HoldSyncs makes the agent delay the calls to fsync of the node's process and of each later one.
func (df *Disk) HoldSyncs(ctx context.Context, key string, by time.Duration) (disk.Syncs, error) {
	if df.spec.Role != node.Server {
		return disk.Syncs{}, chaos.Unavailable{
			What:   string(disk.CanHoldSyncs),
			Reason: df.Name() + " keeps no data",
		}
	}
	was, err := df.SyncsHeld(ctx)
	if err != nil {
		return was, err
	}
	args := disk.SyncsArgs{By: by, Threads: df.spec.SyncThreads}
	return was, df.orders.apply(ctx, agent.Order{Do: disk.DoSyncs, Key: syncKey + df.orders.key(key), Args: args}, nil)
}

// SyncsHeld asks the agent for its counts so far.
func (df *Disk) SyncsHeld(ctx context.Context) (disk.Syncs, error) {
	if !df.process.Running() {
		return disk.Syncs{Gone: true}, nil
	}
	var out disk.Syncs
	err := df.orders.order(ctx, agent.Order{Do: disk.DoSynced}, &out)
	return out, err
}

// LetSyncsGo makes the agent end the delay.
func (df *Disk) LetSyncsGo(ctx context.Context, key string) (disk.Syncs, error) {
	var out disk.Syncs
	err := df.orders.takeBack(ctx, syncKey+df.orders.key(key), &out)
	if !df.process.Running() || errors.Is(err, proc.ErrNoProcess) {
		out.Gone, err = true, nil
	}
	for _, s := range df.orders.list() {
		if strings.HasPrefix(s.order.Key, syncKey) {
			out.Others++
		}
	}
	return out, err
}

// loopDisk is a disk that the agent made for one node: ext4 in an unnamed file, behind a loop device. It is mounted for
// the life of the node's process: by the engine as the container's volume, or in the process's own mount namespace. The
// agent keeps the device open. So the disk vanishes with the node and the agent, however they end.
type loopDisk struct {
	agent  *agent.Client
	key    string
	device string
}

// makeDisk creates a disk through the agent; without is the reason if there is no agent.
func makeDisk(ctx context.Context, a *agent.Client, without error, node string, args disk.Args) (*loopDisk, error) {
	if a == nil {
		return nil, chaos.Unavailable{
			What:   string(disk.LoopDisk),
			Reason: fmt.Sprintf("the agent, which makes it, was not started: %v", without),
		}
	}
	d := &loopDisk{agent: a, key: "loop-disk/" + node}
	var made disk.Made
	if err := a.Order(ctx, agent.Order{Do: disk.DoDisk, Key: d.key, Args: args}, &made); err != nil {
		return nil, chaos.Unavailable{What: string(disk.LoopDisk), Reason: err.Error()}
	}
	if !strings.HasPrefix(made.Device, "/dev/loop") {
		return nil, chaos.Unavailable{
			What:   string(disk.LoopDisk),
			Reason: fmt.Sprintf("the agent made the device %q", made.Device),
		}
	}
	d.device = made.Device
	return d, nil
}

// mark writes the synced file to the disk, before each start.
func (d *loopDisk) mark(ctx context.Context) error {
	if err := d.order(ctx, disk.DoMark, nil); err != nil {
		return fmt.Errorf("prepare the disk: %w", err)
	}
	return nil
}

func (d *loopDisk) order(ctx context.Context, do string, result any) error {
	return d.agent.Order(ctx, agent.Order{Do: do, Key: d.key + "/" + do, Args: disk.Use{Disk: d.key}}, result)
}

// CutPower makes the agent shut down the node's file system, kill the node, and check what is left on the disk.
func (df *Disk) CutPower(ctx context.Context) (disk.PowerLost, error) {
	d, exited := df.loop, df.process.Exited()
	if d == nil {
		return disk.PowerLost{}, chaos.Unavailable{
			What:   string(disk.CanCutPower),
			Reason: df.Name() + " has no disk of its own",
		}
	}
	if !df.process.Running() {
		return disk.PowerLost{}, fmt.Errorf("cut the power of %s: %w", df.Name(), proc.ErrNoProcess)
	}
	var cut disk.Cut
	acting, done := clock.Act(ctx)
	err := df.orders.order(acting, agent.Order{Do: disk.DoCut, Args: disk.Use{Disk: d.key, Dir: df.place.Dir}}, &cut)
	done()
	if err != nil {
		return disk.PowerLost{}, err
	}
	df.signals.thawAll(ctx)
	ctx, cancel := context.WithTimeout(ctx, actTimeout)
	defer cancel()
	select {
	case <-exited:
	case <-ctx.Done():
		return disk.PowerLost{}, fmt.Errorf("%s did not end when its power was cut: %w", df.Name(), ctx.Err())
	}
	var found disk.Seen
	if err := d.order(ctx, disk.DoLook, &found); err != nil {
		return disk.PowerLost{}, fmt.Errorf("the disk of %s after its power was cut: %w", df.Name(), err)
	}
	return disk.PowerLost{
		Seen: found, Gap: time.Duration(cut.Killed - cut.Shut), Time: df.orders.runTime(ctx, cut.Shut),
	}, nil
}
