package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/lockquake/lockquake/chaos"
	wall "github.com/lockquake/lockquake/chaos/clock"
	"github.com/lockquake/lockquake/chaos/disk"
	"github.com/lockquake/lockquake/internal/cluster/copyin"
	"github.com/lockquake/lockquake/internal/cluster/imagestore"
	"github.com/lockquake/lockquake/internal/cluster/owner"
	"github.com/lockquake/lockquake/internal/cluster/preload"
	"github.com/lockquake/lockquake/internal/node"
)

// Preparer is a provider that can give nodes what a fault needs of them before they start.
type Preparer interface {
	// Prepares returns nil when nodes like that one can be prepared so, else a chaos.Unavailable with the reason. image
	// is what the user named instead of the project's own image; "" where there is none. A node that cannot be looked
	// at before Open, because its image is not there yet, is refused by Open.
	Prepares(p node.Preparation, s node.Spec, image string) error
}

// prepared is what the preparations of one node add to its start. Each provider has a table of functions that return
// one.
type prepared struct {
	// env holds "KEY=value" settings beside the spec's own.
	env []string
	// data is a directory of the machine that the nodes run on, in the place of the node's usual data directory; "" for
	// that one.
	data string
	// disk is a block device of that machine, with ext4 on it, in the place of the node's usual data directory; "" for
	// that one.
	disk string
	// before is called before each start of the node, when its container (docker) or data directory (local) is there;
	// may be nil.
	before func(ctx context.Context) error
	// undo is called when the node has ended for good and its container is gone; also for nodes that never started. It
	// may be nil, and may be called again when it did not succeed.
	undo func(ctx context.Context) error
}

// and joins two.
func (f prepared) and(o prepared) prepared {
	f.env = append(f.env, o.env...)
	if o.data != "" {
		f.data = o.data
	}
	if o.disk != "" {
		f.disk = o.disk
	}
	f.before, f.undo = both(f.before, o.before), both(o.undo, f.undo) // undone in reverse
	return f
}

func both(first, second func(context.Context) error) func(context.Context) error {
	switch {
	case first == nil:
		return second
	case second == nil:
		return first
	}
	return func(ctx context.Context) error { return errors.Join(first(ctx), second(ctx)) }
}

// do calls before or undo, where there is one.
func do(ctx context.Context, f func(context.Context) error) error {
	if f == nil {
		return nil
	}
	return f(ctx)
}

// prepareNode makes a node's preparations. What was done is returned also beside an error.
func prepareNode[R any](ctx context.Context, run R, n *Node,
	table map[node.Preparation]func(context.Context, R, *Node) (prepared, error),
) (prepared, error) {
	var all prepared
	for _, p := range n.spec.Preparations {
		prepare, ok := table[p]
		if !ok {
			return all, unknownPreparation(p)
		}
		one, err := prepare(ctx, run, n)
		all = all.and(one)
		if err != nil {
			return all, err
		}
	}
	return all, nil
}

func unknownPreparation(p node.Preparation) error {
	return chaos.Unavailable{What: string(p), Reason: "this provider does not know how to prepare a node so"}
}

// preparable holds for all providers: what a node's own nature forbids.
func preparable(p node.Preparation, s node.Spec) error {
	if p == wall.Preload && (s.Go || s.Image == node.SelfProgram) {
		return chaos.Unavailable{
			What:   string(p),
			Reason: "it is a Go program, which asks the kernel for the time and not the C library; use how: vdso",
			Never:  true,
		}
	}
	if p == disk.LoopDisk && s.Role != node.Server {
		return chaos.Unavailable{What: string(p), Reason: "a " + string(s.Role) +
			" keeps no data; use power-loss on servers", Never: true}
	}
	return nil
}

// localPreparations are what the local provider can prepare.
var localPreparations = map[node.Preparation]func(context.Context, *localRun, *Node) (prepared, error){
	disk.LoopDisk: loopDiskHere,
	wall.Preload: func(_ context.Context, r *localRun, n *Node) (prepared, error) {
		libraries, err := preload.Find(preload.Here)
		if err != nil {
			return prepared{}, err
		}
		n.Clock.faketime = preload.File(r.dir, n.Name())
		return prepared{
			env: preload.Env(libraries, n.Clock.faketime),
			before: func(context.Context) error {
				// whatever the umask is
				return errors.Join(os.WriteFile(n.Clock.faketime, []byte(preload.NoShift), 0o644),
					os.Chmod(n.Clock.faketime, 0o644))
			},
		}, nil
	},
}

// Prepares looks for what the preparation needs on this machine.
func (l *local) Prepares(p node.Preparation, s node.Spec, _ string) error {
	if err := preparable(p, s); err != nil {
		return err
	}
	if p == wall.Preload {
		_, err := preload.Find(preload.Here)
		return hint(err, "on this machine; run `.ci/setup faketime`, or install libfaketime and libtcmalloc-minimal4")
	}
	if p == disk.LoopDisk {
		return disksHere()
	}
	return unknownPreparation(p)
}

// hint adds to the reason what would help.
func hint(err error, text string) error {
	if missing, ok := err.(chaos.Unavailable); ok { //nolint:errorlint // as it was made here
		missing.Reason += " " + text
		return missing
	}
	return err
}

// faketimeInImage is where a container keeps the file that tells its wall clock.
const faketimeInImage = "/lockquake-faketime"

// dockerPreparations are what the docker provider can prepare.
var dockerPreparations = map[node.Preparation]func(context.Context, *dockerRun, *Node) (prepared, error){
	disk.LoopDisk: loopDiskIn,
	wall.Preload: func(ctx context.Context, r *dockerRun, n *Node) (prepared, error) {
		libraries, err := r.librariesOf(ctx, r.images[n.spec.Image])
		if err != nil {
			return prepared{}, err
		}
		n.Clock.faketime = faketimeInImage
		return prepared{
			env: preload.Env(libraries, n.Clock.faketime),
			before: func(ctx context.Context) error {
				return copyin.File(ctx, r.api, n.driver.(*containerNode).box.GetContainerID(), faketimeInImage,
					preload.NoShift)
			},
		}, nil
	},
}

// Prepares looks for what the preparation needs in the image of the node, if the engine has the image.
func (d *docker) Prepares(p node.Preparation, s node.Spec, image string) error {
	if err := preparable(p, s); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), engineTimeout)
	defer cancel()
	switch {
	case s.Named:
		image = s.Image
	case image == "":
		image = imagestore.Project(s.Image)
	}
	if p == wall.Preload {
		if found, err := d.store().Has(ctx, image); !found || err != nil {
			return err // Open says more
		}
		_, err := d.librariesOf(ctx, image)
		return err
	}
	if p == disk.LoopDisk {
		return disksAt(d.api.DaemonHost())
	}
	return unknownPreparation(p)
}

// librariesOf finds what can be preloaded in an image, by a container of it that is never started.
func (d *docker) librariesOf(ctx context.Context, image string) (libraries string, err error) {
	d.preloads.Lock()
	defer d.preloads.Unlock()
	if known, ok := d.preloads.of[image]; ok {
		return known, nil
	}
	made, err := whole(ctx, func(ctx context.Context) (client.ContainerCreateResult, error) {
		return d.api.ContainerCreate(ctx, client.ContainerCreateOptions{
			Config: &container.Config{
				Image: image, Entrypoint: []string{"none"},
				Labels: owner.Self("preload", false).Labels(),
			},
		})
	})
	if err != nil {
		return "", fmt.Errorf("look into image %s: %w", image, err)
	}
	defer func() { err = errors.Join(err, removeContainer(context.WithoutCancel(ctx), d.api, made.ID)) }()
	libraries, err = preload.Find(func(path string) (bool, error) {
		_, err := d.api.ContainerStatPath(ctx, made.ID, client.ContainerStatPathOptions{Path: path})
		if cerrdefs.IsNotFound(err) {
			return false, nil
		}
		return err == nil, err
	})
	if err != nil {
		return "", hint(err, "in image "+image+
			"; use how: vdso, or an image with libfaketime and libtcmalloc-minimal4 in it (`lockquake images` makes those of the project)")
	}
	if d.preloads.of == nil {
		d.preloads.of = map[string]string{}
	}
	d.preloads.of[image] = libraries
	return libraries, nil
}
