// Package images builds lockquake's node images. The Dockerfiles are embedded, so that no copy of the repository is
// needed.
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

// ErrMissing says that there is no container engine or no base image. The output of the build says which.
var ErrMissing = errors.New("a prerequisite of the images is missing")

// missing is build.sh's exit code for that.
const missing = 3

// Names returns the names of the images, which are those of their directories.
func Names() []string {
	dirs, _ := fs.Glob(files, "*/Dockerfile") // the pattern is valid
	for i, d := range dirs {
		dirs[i] = filepath.Dir(d)
	}
	slices.Sort(dirs)
	return dirs
}

// Build builds those of the named images (or of all) that the engine lacks or that were built from another Dockerfile.
// Progress goes to w. The error wraps ErrMissing if there is no engine or no base image.
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
