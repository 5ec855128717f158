// Package imagestore finds, pulls and makes the images of nodes.
package imagestore

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"sync"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/internal/cluster/executable"
	"github.com/lockquake/lockquake/internal/cluster/owner"
)

// The image of our own binary: its repository, and the binary's path in it.
const (
	SelfRepository = "lockquake-node"
	SelfPath       = "/lockquake"
)

// OnDemand are the keys of the images that are built only on request, for clients in other languages.
var OnDemand = []string{"python", "java", "nodejs"}

// Project returns the project's own image for an image key; `lockquake images` makes it.
func Project(key string) string { return "lockquake-" + key + ":latest" }

// Store is the image store of one engine.
type Store struct {
	API  client.APIClient
	Self string // lockquake's own binary; "" as in executable.Self
	Log  *slog.Logger
	// Lend makes another engine copy a missing image to this one, and reports whether it had the image. nil if there is
	// no other engine.
	Lend func(ctx context.Context, ref string) (bool, error)
}

// HasProject returns nil if the engine has the project's own image of that key.
func (s Store) HasProject(ctx context.Context, key string) error {
	ref := Project(key)
	if found, err := s.Has(ctx, ref); found || err != nil {
		return err
	}
	build := "lockquake images"
	if slices.Contains(OnDemand, key) {
		build += " " + key
	}
	return chaos.Unavailable{What: "image " + ref, Reason: "the engine does not have it; run `" + build +
		"`, or name another with --image " + key + "=IMAGE"}
}

// Has reports whether the engine has an image, or got it by Lend.
func (s Store) Has(ctx context.Context, ref string) (bool, error) {
	_, err := s.API.ImageInspect(ctx, ref)
	if cerrdefs.IsNotFound(err) {
		if s.Lend != nil {
			return s.Lend(ctx, ref)
		}
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("inspect image %s: %w", ref, err)
	}
	return true, nil
}

// EnsurePulled pulls an image named by the user if the engine does not have it.
func (s Store) EnsurePulled(ctx context.Context, ref string) error {
	found, err := s.Has(ctx, ref)
	if found || err != nil {
		return err
	}
	s.Log.Info("pulling image", "image", ref)
	pull, err := s.API.ImagePull(ctx, ref, client.ImagePullOptions{})
	if err == nil {
		err = errors.Join(pull.Wait(ctx), pull.Close())
	}
	if err != nil {
		return chaos.Unavailable{What: "image " + ref, Reason: "the engine does not have it and cannot pull it: " +
			err.Error()}
	}
	return nil
}

// EnsureSelf makes an image with only our own binary, tagged by its content.
func (s Store) EnsureSelf(ctx context.Context) (string, error) {
	path, err := executable.Self(s.Self)
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
	ref := SelfRepository + ":" + sum
	importing.Lock()
	defer importing.Unlock()
	if found, err := s.Has(ctx, ref); found || err != nil {
		return ref, err
	}
	s.Log.Info("making the image of lockquake's own binary", "image", ref, "binary", path)
	body, w := io.Pipe()
	go func() { _ = w.CloseWithError(writeImage(w, path)) }()
	defer func() { _ = body.Close() }()
	answer, err := s.API.ImageImport(ctx, client.ImageImportSource{Source: body, SourceName: "-"}, SelfRepository,
		client.ImageImportOptions{
			Tag: sum, Message: "lockquake's own binary", Changes: []string{"LABEL " + owner.Label + "self=true"},
		})
	if err != nil {
		return "", fmt.Errorf("make image %s: %w", ref, err)
	}
	defer func() { _ = answer.Close() }()
	if _, err := io.Copy(io.Discard, answer); err != nil {
		return "", fmt.Errorf("make image %s: %w", ref, err)
	}
	if found, err := s.Has(ctx, ref); err != nil || !found {
		return "", errors.Join(fmt.Errorf("the engine accepted image %s, but does not have it", ref), err)
	}
	return ref, nil
}

// importing serializes the imports of this process: the second finds the image of the first.
var importing sync.Mutex

// writeImage writes the only layer: the binary and a /tmp.
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
	if err := t.WriteHeader(&tar.Header{
		Typeflag: tar.TypeReg, Name: SelfPath[1:], Mode: 0o755,
		Size: info.Size(),
	}); err != nil {
		return err
	}
	if _, err := io.Copy(t, f); err != nil {
		return err
	}
	return t.Close()
}
