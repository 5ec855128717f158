// Package longrun has what programs share that make runs for hours with lockquake: its build, the program as a command,
// and a record from which an interrupted program resumes.
package longrun

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Program is the path of the built program, from the top of the tree.
const Program = "build/lockquake"

// Build builds the program and returns its commit, marked if files are edited that are built: the pages that are
// written from runs are not. It notes the commit first: later edits are not in it.
func Build(ctx context.Context, tell io.Writer) (commit string, err error) {
	out, err := exec.CommandContext(ctx, "git", "describe", "--always", "--exclude=*").Output()
	if err != nil {
		return "", fmt.Errorf("git describe: %w", err)
	}
	commit = strings.TrimSpace(string(out))
	if exec.CommandContext(ctx, "git", "diff", "--quiet", "HEAD", "--", ".", ":!docs").Run() != nil {
		commit += "-dirty"
	}
	cmd := exec.CommandContext(ctx, "make", "build")
	cmd.Stdout, cmd.Stderr = tell, tell
	return commit, cmd.Run()
}

// Command returns the command that runs a program. When ctx ends, the program is asked to end, once, and waited for:
// lockquake heals what it broke before it ends. A signal to the caller's group does not reach it.
func Command(ctx context.Context, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) }
	cmd.WaitDelay = 3 * time.Minute
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd
}

// OpenRecord opens a file of JSON objects, one a line, for appending, and passes the objects in it to take. It removes
// a last line that was cut off by an interruption.
func OpenRecord[T any](path string, take func(T)) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	for d := json.NewDecoder(f); ; {
		var one T
		err := d.Decode(&one)
		switch {
		case errors.Is(err, io.EOF):
			return f, nil
		case errors.Is(err, io.ErrUnexpectedEOF):
			if err := f.Truncate(d.InputOffset()); err != nil {
				return nil, err
			}
			_, err = f.WriteString("\n") // the end of the line before
			return f, err
		case err != nil:
			return nil, fmt.Errorf("%s, at byte %d: %w", path, d.InputOffset(), errors.Join(err, f.Close()))
		}
		take(one)
	}
}
