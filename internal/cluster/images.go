package cluster

import (
	"context"
	"fmt"

	"github.com/moby/moby/client"

	"github.com/lockquake/lockquake/internal/cluster/imagestore"
	"github.com/lockquake/lockquake/internal/node"
)

// dataDir is Place.Dir in every container.
const dataDir = "/lockquake-data"

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
			err = r.store().EnsurePulled(ctx, key)
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
		return ref, r.store().EnsurePulled(ctx, ref)
	}
	if key == node.SelfProgram {
		return r.store().EnsureSelf(ctx)
	}
	return imagestore.Project(key), r.store().HasProject(ctx, key)
}

// Imager is a provider whose nodes are made from images.
type Imager interface {
	// HasImage returns nil where there is the project's own image of that key, or where Open makes it; else a
	// chaos.Unavailable that says how to get it.
	HasImage(key string) error
}

// store is the images of the engine.
func (d *docker) store() imagestore.Store {
	return imagestore.Store{API: d.api, Self: d.options.Self, Log: d.log, Lend: d.lend}
}

// HasImage asks the engine.
func (d *docker) HasImage(key string) error {
	if key == node.SelfProgram {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), engineTimeout)
	defer cancel()
	return d.store().HasProject(ctx, key)
}

// SelfImage makes the image of lockquake's own binary where the engine does not have it, names it ContainerImage, and
// returns that name.
func SelfImage(ctx context.Context) (string, error) {
	d, err := newDocker(DockerOptions{})
	if err != nil {
		return "", err
	}
	made, err := d.store().EnsureSelf(ctx)
	if err != nil {
		return "", err
	}
	ref := ContainerImage(node.SelfProgram)
	if _, err := d.api.ImageTag(ctx, client.ImageTagOptions{Source: made, Target: ref}); err != nil {
		return "", fmt.Errorf("name image %s %s: %w", made, ref, err)
	}
	return ref, nil
}
