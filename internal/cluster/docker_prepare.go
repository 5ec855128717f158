package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/client"

	"github.com/lockquake/lockquake/chaos"
	wall "github.com/lockquake/lockquake/chaos/clock"
	"github.com/lockquake/lockquake/chaos/disk"
	"github.com/lockquake/lockquake/chaos/shell"
	"github.com/lockquake/lockquake/internal/cluster/copyin"
	"github.com/lockquake/lockquake/internal/cluster/imagestore"
	"github.com/lockquake/lockquake/internal/cluster/owner"
	"github.com/lockquake/lockquake/internal/cluster/preload"
	"github.com/lockquake/lockquake/internal/node"
)

// resolveImages finds, pulls or makes all images of the run, before anything is started.
func (r *dockerRun) resolveImages(ctx context.Context) error {
	if r.images == nil {
		r.images = make(map[string]string)
	}
	keys := make(map[string]bool) // whether the key is an image itself
	for _, s := range r.request.Specs {
		keys[s.Image] = s.Named
	}
	for key := range r.request.Images {
		if _, known := keys[key]; !known {
			return fmt.Errorf("--image %s: no node of this run has an image of that name", key)
		}
	}
	if r.request.Agent {
		keys[node.SelfProgram] = false
	}
	for key, named := range keys {
		if _, known := r.images[key]; known {
			continue
		}
		ref, err := key, error(nil)
		if named {
			err = r.engine.store().EnsurePulled(ctx, key)
		} else {
			ref, err = r.resolve(ctx, key)
		}
		if err != nil {
			return err
		}
		r.images[key] = ref
	}
	return nil
}

func (r *dockerRun) resolve(ctx context.Context, key string) (string, error) {
	if ref, ok := r.request.Images[key]; ok {
		return ref, r.engine.store().EnsurePulled(ctx, ref)
	}
	if key == node.SelfProgram {
		return r.engine.store().EnsureSelf(ctx)
	}
	return imagestore.Project(key), r.engine.store().HasProject(ctx, key)
}

// faketimeInImage is the path of the libfaketime file in a container.
const faketimeInImage = "/lockquake-faketime"

// dockerPreparations lists the preparations of the docker provider.
var dockerPreparations = map[node.Preparation]func(context.Context, *dockerRun, *Node) (prepared, error){
	disk.LoopDisk: loopDiskIn,
	shell.Shell:   func(context.Context, *dockerRun, *Node) (prepared, error) { return prepared{}, nil },
	wall.Preload: func(ctx context.Context, r *dockerRun, n *Node) (prepared, error) {
		libraries, err := r.engine.librariesOf(ctx, r.images[n.spec.Image])
		if err != nil {
			return prepared{}, err
		}
		n.Clock.faketime = faketimeInImage
		return prepared{
			env: preload.Env(libraries, n.Clock.faketime),
			before: func(ctx context.Context) error {
				return copyin.File(ctx, r.engine.api, n.driver.(*containerNode).box.GetContainerID(), faketimeInImage,
					preload.NoShift)
			},
		}, nil
	},
}

// Prepares checks the image of the node for what the preparation needs, if the engine has the image.
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
	if p == shell.Shell {
		return d.shellOf(ctx, s, image)
	}
	if p == wall.Preload {
		if found, err := d.store().Has(ctx, image); !found || err != nil {
			return err // Open returns a better error
		}
		_, err := d.librariesOf(ctx, image)
		return err
	}
	if p == disk.LoopDisk {
		return disksAt(d.api.DaemonHost())
	}
	return unknownPreparation(p)
}

// shellOf checks for a shell in the image of a node.
func (d *docker) shellOf(ctx context.Context, s node.Spec, image string) (err error) {
	none := chaos.Unavailable{What: string(shell.Shell), Reason: "there is no " + shell.Path + " in image " + s.Image}
	if s.Image == node.SelfProgram {
		return none // the image has only one program
	}
	if found, err := d.store().Has(ctx, image); !found || err != nil {
		return err // Open returns a better error
	}
	return d.lookInto(ctx, image, func(exists func(path string) (bool, error)) error {
		found, err := exists(shell.Path)
		if err == nil && !found {
			err = none
		}
		return err
	})
}

// librariesOf finds the libraries to preload in an image, through a container that is never started.
func (d *docker) librariesOf(ctx context.Context, image string) (libraries string, err error) {
	d.preloads.Lock()
	defer d.preloads.Unlock()
	if known, ok := d.preloads.of[image]; ok {
		return known, nil
	}
	err = d.lookInto(ctx, image, func(exists func(string) (bool, error)) (err error) {
		libraries, err = preload.Find(exists)
		return hint(err, "in image "+image+
			"; use how: vdso, or an image with libfaketime and libtcmalloc-minimal4 in it (`lockquake images` makes those of the project)")
	})
	if err != nil {
		return "", err
	}
	if d.preloads.of == nil {
		d.preloads.of = map[string]string{}
	}
	d.preloads.of[image] = libraries
	return libraries, nil
}

// lookInto checks for files in an image, through a container that is never started.
func (d *docker) lookInto(ctx context.Context, image string,
	look func(exists func(path string) (bool, error)) error,
) (err error) {
	made, err := whole(ctx, func(ctx context.Context) (client.ContainerCreateResult, error) {
		return d.api.ContainerCreate(ctx, client.ContainerCreateOptions{
			Config: &container.Config{
				Image: image, Entrypoint: []string{"none"},
				Labels: owner.Self("preload", false).Labels(),
			},
		})
	})
	if err != nil {
		return fmt.Errorf("inspect image %s: %w", image, err)
	}
	defer func() { err = errors.Join(err, removeContainer(context.WithoutCancel(ctx), d.api, made.ID)) }()
	return look(func(path string) (bool, error) {
		_, err := d.api.ContainerStatPath(ctx, made.ID, client.ContainerStatPathOptions{Path: path})
		if cerrdefs.IsNotFound(err) {
			return false, nil
		}
		return err == nil, err
	})
}

// Paths in the agent's container for making disks.
const (
	disksInAgent   = "/lockquake-disks"
	devicesInAgent = "/lockquake-dev"
)

// disksForAgent lets the agent's container make loop devices. It may use no other devices, and has a volume for their
// files.
func disksForAgent(h *container.HostConfig) {
	h.DeviceCgroupRules = append(h.DeviceCgroupRules, "c 10:237 rw", "b 7:* rw") // loop-control; loop devices
	h.Mounts = append(h.Mounts, mount.Mount{
		Type: mount.TypeBind, Source: "/dev", Target: devicesInAgent,
		ReadOnly: true,
	},
		mount.Mount{Type: mount.TypeVolume, Target: disksInAgent})
}

// diskVolume returns the mount of the data directory on the disk: the engine mounts it while the container runs.
func diskVolume(device string) mount.Mount {
	return mount.Mount{Type: mount.TypeVolume, Target: dataDir, VolumeOptions: &mount.VolumeOptions{
		DriverConfig: &mount.Driver{Name: "local", Options: map[string]string{"type": "ext4", "device": device}},
	}}
}

// loopDiskIn prepares a container's disk. It waits for the agent, which must exist before the container.
func loopDiskIn(ctx context.Context, r *dockerRun, n *Node) (prepared, error) {
	select {
	case <-r.agentUp:
	case <-ctx.Done():
		return prepared{}, ctx.Err()
	}
	d, err := makeDisk(ctx, r.agent, r.agentErr, n.Name(), disk.Args{Dir: disksInAgent, Dev: devicesInAgent})
	if err != nil {
		return prepared{}, err
	}
	n.Disk.loop = d
	return prepared{disk: d.device, before: d.mark}, nil
}

// disksAt returns why an engine can have no loop disks. For an engine on another machine that is unknown until it is
// tried.
func disksAt(daemon string) error {
	if remote(daemon) {
		return nil
	}
	if _, err := os.Stat(filepath.Join("/proc/self/ns", "mnt")); err != nil {
		return nil //nolint:nilerr // not Linux: the engine is in a virtual machine
	}
	return canLoop()
}
