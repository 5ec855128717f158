// Package cgroup finds the control groups of a run or of a process, and removes them.
package cgroup

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Mount is one mounted hierarchy of control groups.
type Mount struct {
	Version     int    // 1 or 2
	Point, Root string // the mount point, and the group that is mounted there
	Controllers []string
}

// Mounts reads the hierarchies from a file such as /proc/self/mountinfo.
func Mounts(mountinfo string) []Mount {
	var out []Mount
	for s := bufio.NewScanner(strings.NewReader(mountinfo)); s.Scan(); {
		left, right, _ := strings.Cut(s.Text(), " - ")
		f, kind := strings.Fields(left), strings.Fields(right)
		if len(f) < 5 || len(kind) < 3 {
			continue
		}
		m := Mount{Root: f[3], Point: f[4], Controllers: strings.Split(kind[2], ",")}
		switch kind[0] {
		case "cgroup2":
			m.Version = 2
		case "cgroup":
			m.Version = 1
		default:
			continue
		}
		out = append(out, m)
	}
	return out
}

// Has reports whether the hierarchy has a version 1 controller.
func (m Mount) Has(controller string) bool { return slices.Contains(m.Controllers, controller) }

// Folder returns the folder of a group, below the root directory of the process that has it mounted. ok is false if the
// group is outside the mount or does not exist.
func (m Mount) Folder(root, group string) (path string, ok bool) {
	rel, err := filepath.Rel(m.Root, group)
	if err != nil || !filepath.IsLocal(rel) {
		return "", false
	}
	path = filepath.Join(root, m.Point, rel)
	_, err = os.Stat(path)
	return path, err == nil
}

// Group returns the group in the hierarchy of a version 1 controller, from the text of a file such as
// /proc/self/cgroup. The controller "" means version 2.
func Group(text, controller string) (group string, ok bool) {
	for line := range strings.Lines(text) {
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(f) == 3 && slices.Contains(strings.Split(f[1], ","), controller) {
			return f[2], true
		}
	}
	return "", false
}

// Remove removes the folder of an empty group; one that is gone is no error. The kernel may need a moment to let
// go of the last process.
func Remove(folder string) error {
	var err error
	for range 100 {
		if err = unix.Rmdir(folder); err == nil || errors.Is(err, unix.ENOENT) {
			return nil
		}
		if !errors.Is(err, unix.EBUSY) {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	return fmt.Errorf("remove the control group %s: %w", folder, err)
}
