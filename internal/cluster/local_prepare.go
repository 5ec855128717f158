package cluster

import (
	"context"
	"errors"
	"os"
	"strconv"

	"github.com/lockquake/lockquake/chaos"
	wall "github.com/lockquake/lockquake/chaos/clock"
	"github.com/lockquake/lockquake/chaos/disk"
	"github.com/lockquake/lockquake/chaos/shell"
	"github.com/lockquake/lockquake/internal/cluster/executable"
	"github.com/lockquake/lockquake/internal/cluster/identity"
	"github.com/lockquake/lockquake/internal/cluster/preload"
	"github.com/lockquake/lockquake/internal/node"
)

// localPreparations lists the preparations of the local provider.
var localPreparations = map[node.Preparation]func(context.Context, *localRun, *Node) (prepared, error){
	disk.LoopDisk: loopDiskHere,
	shell.Shell:   func(context.Context, *localRun, *Node) (prepared, error) { return prepared{}, nil },
	wall.Preload: func(_ context.Context, r *localRun, n *Node) (prepared, error) {
		libraries, err := preload.Find(preload.Here)
		if err != nil {
			return prepared{}, err
		}
		n.Clock.faketime = preload.File(r.dir, n.Name())
		return prepared{
			env: preload.Env(libraries, n.Clock.faketime),
			before: func(context.Context) error {
				// independent of the umask
				return errors.Join(os.WriteFile(n.Clock.faketime, []byte(preload.NoShift), 0o644),
					os.Chmod(n.Clock.faketime, 0o644))
			},
		}, nil
	},
}

// Prepares checks this machine for what the preparation needs.
func (l *localProvider) Prepares(p node.Preparation, s node.Spec, _ string) error {
	if err := preparable(p, s); err != nil {
		return err
	}
	if p == wall.Preload {
		_, err := preload.Find(preload.Here)
		return hint(err, "on this machine; run `.ci/setup faketime`, or install libfaketime and libtcmalloc-minimal4")
	}
	if p == shell.Shell {
		if _, err := os.Stat(shell.Path); err != nil {
			return chaos.Unavailable{What: string(p), Reason: err.Error()}
		}
		return nil
	}
	if p == disk.LoopDisk {
		return disksHere()
	}
	return unknownPreparation(p)
}

// loopDiskHere prepares the disk of a process on this machine at its first start, when the agent exists.
func loopDiskHere(_ context.Context, r *localRun, n *Node) (prepared, error) {
	return prepared{before: func(ctx context.Context) error {
		if n.Disk.loop == nil {
			d, err := makeDisk(ctx, r.agent, r.agentErr, n.Name(), disk.Args{Dir: r.dir, Dev: "/dev"})
			if err != nil {
				return err
			}
			n.Disk.loop = d
		}
		return n.Disk.loop.mark(ctx)
	}}, nil
}

// onDisk returns the command of a process on the node's disk: lockquake mounts it for itself alone, switches to the
// user, and executes the program.
func (p *localNode) onDisk(path string, argv []string, user identity.User) (string, []string, error) {
	if p.node.Disk.loop == nil {
		return path, argv, nil
	}
	self, err := executable.Self(p.run.provider.options.Self)
	if err != nil {
		return "", nil, err
	}
	return self, append(node.Own("on-disk", p.node.Disk.loop.device, p.node.place.Dir, strconv.Itoa(int(user)), path),
		argv...), nil
}

// disksHere returns why processes of this machine can have no loop disks.
func disksHere() error {
	if os.Geteuid() != 0 {
		return chaos.Unavailable{
			What:   string(disk.LoopDisk),
			Reason: "only root makes loop devices and mounts; use --provider docker",
		}
	}
	return canLoop()
}
