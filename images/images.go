// Package images makes the node images of lockquake: the program carries the Dockerfiles, so that it needs no copy of
// the repository.
package images

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lockquake/lockquake/clients/java"
)

//go:embed build.sh */*
var files embed.FS

// ErrMissing says that there is no engine, or no base image; what was told on the way says which.
var ErrMissing = errors.New("something that the images need is missing")

// missing is the exit code of build.sh for that.
const missing = 3

// Names lists the images by the names of their folders.
func Names() []string {
	dirs, _ := fs.Glob(files, "*/Dockerfile") // the pattern is a right one
	for i, d := range dirs {
		dirs[i] = filepath.Dir(d)
	}
	slices.Sort(dirs)
	return dirs
}

// Build makes those of the named images, or of all, that the engine does not have or that were made from another
// Dockerfile. It tells people on w what it does. An error wraps ErrMissing where there is no engine or no base image.
func Build(ctx context.Context, w io.Writer, names ...string) (err error) {
	dir, err := os.MkdirTemp("", "lockquake-images-")
	if err != nil {
		return fmt.Errorf("make a directory for the Dockerfiles: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := os.CopyFS(dir, files); err != nil {
		return fmt.Errorf("write the Dockerfiles: %w", err)
	}
	if err := os.CopyFS(filepath.Join(dir, "java"), java.Sources); err != nil {
		return fmt.Errorf("write the sources of clients in Java: %w", err)
	}
	cmd := exec.CommandContext(ctx, "sh", append([]string{filepath.Join(dir, "build.sh")}, names...)...)
	cmd.Stdout, cmd.Stderr = w, w
	err = cmd.Run()
	var ended *exec.ExitError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &ended) && ended.ExitCode() == missing:
		return ErrMissing
	}
	return fmt.Errorf("make the images %s: %w", strings.Join(names, ", "), err)
}
