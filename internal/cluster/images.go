package cluster

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/internal/cluster/executable"
	"github.com/lockquake/lockquake/internal/cluster/owner"
	"github.com/lockquake/lockquake/internal/node"
)

const (
	selfImage   = "lockquake-node"  // repository of the image of our own binary
	selfInImage = "/lockquake"      // the binary's path in it
	dataDir     = "/lockquake-data" // Place.Dir in every container
)

// OnDemand are the keys of those images that are built only when they are asked for: clients in other languages run in them.
var OnDemand = []string{"python", "java"}

// projectImage returns the project's own image for an image key; `lockquake images` makes it.
func projectImage(key string) string { return "lockquake-" + key + ":latest" }

// resolveImages finds, pulls or makes every image that the run needs, before anything is started.
func (r *dockerRun) resolveImages(ctx context.Context) error {
	if r.images == nil {
		r.images = make(map[string]string)
	}
	keys := make(map[string]bool) // whether they are images themselves
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
			err = r.ensurePulled(ctx, key)
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
		return ref, r.ensurePulled(ctx, ref)
	}
	if key == node.SelfProgram {
		return r.ensureSelfImage(ctx)
	}
	return projectImage(key), r.hasProjectImage(ctx, key)
}

// Imager is a provider whose nodes are made from images.
type Imager interface {
	// HasImage returns nil where there is the project's own image of that key, or where Open makes it; else a chaos.Unavailable that says how
	// to get it.
	HasImage(key string) error
}

// HasImage asks the engine.
func (d *docker) HasImage(key string) error {
	if key == node.SelfProgram {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), engineTimeout)
	defer cancel()
	return d.hasProjectImage(ctx, key)
}

func (d *docker) hasProjectImage(ctx context.Context, key string) error {
	ref := projectImage(key)
	if found, err := d.hasImage(ctx, ref); found || err != nil {
		return err
	}
	build := "lockquake images"
	if slices.Contains(OnDemand, key) {
		build += " " + key
	}
	return chaos.Unavailable{What: "image " + ref, Reason: "the engine does not have it; run `" + build + "`, or name another with --image " + key + "=IMAGE"}
}

func (d *docker) hasImage(ctx context.Context, ref string) (bool, error) {
	_, err := d.api.ImageInspect(ctx, ref)
	if cerrdefs.IsNotFound(err) {
		if d.lend != nil {
			return d.lend(ctx, ref)
		}
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for image %s: %w", ref, err)
	}
	return true, nil
}

// ensurePulled pulls an image that the user named and the engine does not have.
func (d *docker) ensurePulled(ctx context.Context, ref string) error {
	found, err := d.hasImage(ctx, ref)
	if found || err != nil {
		return err
	}
	d.log.Info("pulling image", "image", ref)
	pull, err := d.api.ImagePull(ctx, ref, client.ImagePullOptions{})
	if err == nil {
		err = errors.Join(pull.Wait(ctx), pull.Close())
	}
	if err != nil {
		return chaos.Unavailable{What: "image " + ref, Reason: "the engine does not have it and cannot pull it: " + err.Error()}
	}
	return nil
}

// ensureSelfImage makes an image of nothing but our own binary, tagged by its content.
func (d *docker) ensureSelfImage(ctx context.Context) (string, error) {
	path, err := executable.Self(d.options.Self)
	if err != nil {
		return "", err
	}
	if err := executable.Static(path); err != nil {
		return "", err
	}
	sum, err := executable.Hash(path)
	if err != nil {
		return "", err
	}
	ref := selfImage + ":" + sum
	importing.Lock()
	defer importing.Unlock()
	if found, err := d.hasImage(ctx, ref); found || err != nil {
		return ref, err
	}
	d.log.Info("making the image of the own binary", "image", ref, "binary", path)
	body, w := io.Pipe()
	go func() { _ = w.CloseWithError(writeImage(w, path)) }()
	defer func() { _ = body.Close() }()
	answer, err := d.api.ImageImport(ctx, client.ImageImportSource{Source: body, SourceName: "-"}, selfImage, client.ImageImportOptions{
		Tag: sum, Message: "lockquake's own binary", Changes: []string{"LABEL " + owner.Label + "self=true"},
	})
	if err != nil {
		return "", fmt.Errorf("make image %s: %w", ref, err)
	}
	defer func() { _ = answer.Close() }()
	if _, err := io.Copy(io.Discard, answer); err != nil {
		return "", fmt.Errorf("make image %s: %w", ref, err)
	}
	if found, err := d.hasImage(ctx, ref); err != nil || !found {
		return "", errors.Join(fmt.Errorf("the engine took image %s, but does not have it", ref), err)
	}
	return ref, nil
}

// SelfImage makes the image of lockquake's own binary where the engine does not have it, names it ContainerImage, and
// returns that name.
func SelfImage(ctx context.Context) (string, error) {
	d, err := newDocker(DockerOptions{})
	if err != nil {
		return "", err
	}
	made, err := d.ensureSelfImage(ctx)
	if err != nil {
		return "", err
	}
	ref := ContainerImage(node.SelfProgram)
	if _, err := d.api.ImageTag(ctx, client.ImageTagOptions{Source: made, Target: ref}); err != nil {
		return "", fmt.Errorf("name image %s %s: %w", made, ref, err)
	}
	return ref, nil
}

// importing lets only one import of this process run at a time: the second finds the image of the first.
var importing sync.Mutex

// writeImage writes the only layer: the binary, and a /tmp.
func writeImage(w io.Writer, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	t := tar.NewWriter(w)
	if err := t.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: "tmp/", Mode: 0o1777}); err != nil {
		return err
	}
	if err := t.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: selfInImage[1:], Mode: 0o755, Size: info.Size()}); err != nil {
		return err
	}
	if _, err := io.Copy(t, f); err != nil {
		return err
	}
	return t.Close()
}
