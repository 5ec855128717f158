package cluster

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/lockquake/lockquake/chaos"
)

// faketimeInImage is where a container keeps the file that tells its wall clock.
const faketimeInImage = "/lockquake-faketime"

// dockerPreparations are what the docker provider can prepare.
var dockerPreparations = map[chaos.Preparation]func(context.Context, *dockerRun, *Node) (fitting, error){
	chaos.LoopDisk: loopDiskIn,
	chaos.Preload: func(ctx context.Context, r *dockerRun, n *Node) (fitting, error) {
		libraries, err := r.librariesOf(ctx, r.images[n.spec.Image])
		if err != nil {
			return fitting{}, err
		}
		n.faketime = faketimeInImage
		return fitting{
			env: faketimeEnv(libraries, n.faketime),
			before: func(ctx context.Context) error {
				return r.put(ctx, n.driver.(*containerNode).box.GetContainerID(), faketimeInImage, noFaketime)
			},
		}, nil
	},
}

// put writes a small file into a container, which need not run.
func (d *docker) put(ctx context.Context, box, path, content string) error {
	var b bytes.Buffer
	t := tar.NewWriter(&b)
	err := t.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: path[1:], Mode: 0o644, Size: int64(len(content)), ModTime: time.Unix(0, 0)})
	if err == nil {
		_, err = t.Write([]byte(content))
	}
	if err = errors.Join(err, t.Close()); err != nil {
		return err
	}
	if _, err := d.api.CopyToContainer(ctx, box, client.CopyToContainerOptions{DestinationPath: "/", Content: &b}); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// Prepares looks for what the preparation needs in the image of the node, if the engine has the image.
func (d *docker) Prepares(p chaos.Preparation, s Spec, image string) error {
	if err := preparable(p, s); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), engineTimeout)
	defer cancel()
	if image == "" {
		image = projectImage(s.Image)
	}
	if p == chaos.Preload {
		if found, err := d.hasImage(ctx, image); !found || err != nil {
			return err // Open says more
		}
		_, err := d.librariesOf(ctx, image)
		return err
	}
	if p == chaos.LoopDisk {
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
	made, err := d.api.ContainerCreate(ctx, client.ContainerCreateOptions{
		Config: &container.Config{Image: image, Entrypoint: []string{"none"}, Labels: self("preload", false).labels()},
	})
	if err != nil {
		return "", fmt.Errorf("look into image %s: %w", image, err)
	}
	defer func() { err = errors.Join(err, removeContainer(context.WithoutCancel(ctx), d.api, made.ID)) }()
	libraries, err = preload(func(path string) (bool, error) {
		_, err := d.api.ContainerStatPath(ctx, made.ID, client.ContainerStatPathOptions{Path: path})
		if cerrdefs.IsNotFound(err) {
			return false, nil
		}
		return err == nil, err
	})
	if err != nil {
		return "", hint(err, "in image "+image+"; use how: vdso, or an image with libfaketime and libtcmalloc-minimal4 in it (`make images` makes those of the project)")
	}
	if d.preloads.of == nil {
		d.preloads.of = map[string]string{}
	}
	d.preloads.of[image] = libraries
	return libraries, nil
}
