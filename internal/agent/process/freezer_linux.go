package process

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lockquake/lockquake/internal/agent/cgroup"
	"github.com/lockquake/lockquake/internal/agent/proc"
	"github.com/lockquake/lockquake/internal/clock"
)

// freezer is a control group that can be frozen, as seen from here.
//
// Example: pid 4711 is in the group /lockquake-run1/redis-1 of version 2, which is mounted at /sys/fs/cgroup. below
// makes the group lockquake-frozen-... in it, take moves the pid there, and set writes 1 to its cgroup.freeze. When
// cgroup.events says "frozen 1", all its threads are halted. The undo moves the pid back and removes the group.
type freezer struct {
	version  int
	folder   string
	group    string // as the kernel calls it
	readOnly bool
}

// The files to freeze groups and read their state.
var (
	freezeFile = map[int]string{1: "freezer.state", 2: "cgroup.freeze"}
	frozenFile = map[int]string{1: "freezer.state", 2: "cgroup.events"}
	freezeWord = map[int]map[bool]string{1: {true: "FROZEN", false: "THAWED"}, 2: {true: "1", false: "0"}}
)

// freezeTime bounds the wait for the kernel: a thread in uninterruptible sleep is frozen only when it wakes up.
const freezeTime = 5 * time.Second

// freezersOf lists the groups by which a process may be frozen, writable ones first. Version 1 comes before version 2:
// if both are mounted, container engines use version 1.
func freezersOf(pid int) ([]freezer, error) {
	seen, err := groupsOf(pid, "freezer")
	if err != nil {
		return nil, err
	}
	var writable, readable []freezer
	found := map[int]bool{} // versions with a writable group
	for _, g := range seen {
		f := freezer{version: g.version, folder: g.folder, group: g.group, readOnly: g.readOnly()}
		switch {
		case found[g.version]:
		case f.readOnly:
			readable = append(readable, f)
		default:
			writable, found[g.version] = append(writable, f), true
		}
	}
	all := slices.Concat(writable, readable)
	if len(all) == 0 {
		return nil, errors.New("no freezer is available: neither version of control groups is mounted where its group is visible")
	}
	return all, nil
}

// viewsOf lists the processes whose mounts may show the group of a process: ours, and its parent. The mounts of our own
// container end at our own group. The parent of a container is the engine's program that made its group.
func viewsOf(pid int) []string {
	views := []string{"/proc/self"}
	if fields, err := proc.StatFields(fmt.Sprintf("/proc/%d/stat", pid)); err == nil && len(fields) > 1 {
		if parent, err := strconv.Atoi(string(fields[1])); err == nil && parent > 1 {
			views = append(views, fmt.Sprintf("/proc/%d", parent))
		}
	}
	return views
}

// groupSeen is the control group of a process as seen through the mounts of one process.
type groupSeen struct {
	version       int
	folder, group string
	top           string // the mount of its hierarchy
}

func (g groupSeen) readOnly() bool { return unix.Access(g.folder, unix.W_OK) != nil }

// groupsOf lists the views of a process's group: the controller's in version 1, the only one in version 2.
func groupsOf(pid int, controller string) (out []groupSeen, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return nil, proc.Absent(err)
	}
	for _, view := range viewsOf(pid) {
		mounts, err := os.ReadFile(view + "/mountinfo")
		if err != nil {
			continue
		}
		root := view + "/root"
		if view == "/proc/self" {
			root = ""
		}
		for i, controller := range []string{controller, ""} {
			m, folder, group, ok := seenGroup(i+1, controller, root, string(mounts), string(text))
			if ok {
				out = append(out, groupSeen{i + 1, folder, group, filepath.Join(root, m.Point)})
			}
		}
	}
	return out, nil
}

// seenGroup finds the group of a process, and its hierarchy, among the mounts of a view.
func seenGroup(version int, controller, root, mounts, own string) (m cgroup.Mount, folder, group string, ok bool) {
	if group, ok = cgroup.Group(own, controller); !ok {
		return m, "", "", false
	}
	for _, m := range cgroup.Mounts(mounts) {
		if m.Version != version || version == 1 && !m.Has(controller) {
			continue
		}
		if folder, ok := m.Folder(root, group); ok {
			return m, folder, group, true
		}
	}
	return m, "", group, false
}

// state asks the kernel. Groups at the top of a hierarchy have no state file, and are never frozen.
func (f freezer) state() (frozen bool, said string, err error) {
	b, err := os.ReadFile(filepath.Join(f.folder, frozenFile[f.version]))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		return false, "it is in the group " + f.group + ", which has no freezer", nil
	}
	if err != nil {
		return false, "", fmt.Errorf("ask the freezer of %s: %w", f.group, err)
	}
	said = strings.TrimSpace(string(b))
	if f.version == 2 {
		said = "frozen 0"
		if strings.Contains(string(b), "frozen 1") {
			said = "frozen 1"
		}
	}
	return said == "FROZEN" || said == "frozen 1", fmt.Sprintf("%s %s in the group %s", frozenFile[f.version], said,
		f.group), nil
}

// set freezes or thaws, and returns when the kernel reports that it is done.
func (f freezer) set(ctx context.Context, frozen bool) error {
	ctx, cancel := context.WithTimeout(ctx, freezeTime)
	defer cancel()
	for {
		// Written repeatedly: version 1 can miss a thread that was started meanwhile.
		err := os.WriteFile(filepath.Join(f.folder, freezeFile[f.version]), []byte(freezeWord[f.version][frozen]), 0)
		if err != nil {
			return fmt.Errorf("write to the freezer of %s: %w", f.group, err)
		}
		is, said, err := f.state()
		if err != nil || is == frozen {
			return err
		}
		if clock.Sleep(ctx, 200*time.Microsecond) != nil {
			return fmt.Errorf("%s: %w", said, ctx.Err())
		}
	}
}

// membersOf lists the processes of the group in that folder.
func membersOf(folder string) ([]int, error) {
	b, err := os.ReadFile(filepath.Join(folder, "cgroup.procs"))
	if err != nil {
		return nil, fmt.Errorf("list the processes of a control group: %w", err)
	}
	var out []int
	for line := range strings.Lines(string(b)) {
		if pid, err := strconv.Atoi(strings.TrimSpace(line)); err == nil && pid > 0 {
			out = append(out, pid)
		}
	}
	return out, nil
}

// move moves a process into the group in that folder. An ended process is no error.
func move(pid int, folder string) error {
	err := os.WriteFile(filepath.Join(folder, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0)
	if err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("move pid %d into a control group: %w", pid, err)
	}
	return nil
}

// gather moves a process and its descendants into the group in that folder. Children born there stay there, so it
// repeats until no descendant is outside.
func gather(pid int, folder string) error {
	for range 100 {
		in, err := membersOf(folder)
		if err != nil {
			return err
		}
		family, err := proc.Descendants(pid)
		if err != nil {
			return err
		}
		moved := false
		for _, one := range family {
			if slices.Contains(in, one) {
				continue
			}
			moved = true
			if err := move(one, folder); err != nil {
				return err
			}
		}
		if !moved {
			return nil
		}
	}
	return fmt.Errorf("pid %d starts processes faster than they can be moved into a group", pid)
}

// moveAndRemove moves all processes of a group to another, and removes the group. A missing group is no error.
func moveAndRemove(ctx context.Context, folder, to string) error {
	for {
		list, err := membersOf(folder)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		for _, pid := range list {
			err = errors.Join(err, move(pid, to))
		}
		if err != nil {
			return err
		}
		if len(list) == 0 {
			return cgroup.Remove(folder)
		}
		if clock.Sleep(ctx, 200*time.Microsecond) != nil {
			return ctx.Err()
		}
	}
}

// below makes a group within this one. It has no other controllers, so the limits of this one still apply there.
func (f freezer) below(name string) (freezer, error) {
	out := freezer{version: f.version, folder: filepath.Join(f.folder, name), group: filepath.Join(f.group, name)}
	if err := os.Mkdir(out.folder, 0o755); err != nil {
		return out, fmt.Errorf("make a control group: %w", err)
	}
	if _, err := os.Stat(filepath.Join(out.folder, freezeFile[f.version])); err != nil {
		return out, errors.Join(fmt.Errorf("the kernel's control groups have no freezer: %w", err), out.remove())
	}
	return out, nil
}

// thawAndRemove thaws the group, moves its processes to another, and removes it. A missing group is no error.
func (f freezer) thawAndRemove(ctx context.Context, to freezer) error {
	if _, err := os.Stat(f.folder); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return errors.Join(f.set(ctx, false), moveAndRemove(ctx, f.folder, to.folder))
}

// remove removes the folder of an empty group; the kernel may need a moment to let go of the last process.
func (f freezer) remove() error { return cgroup.Remove(f.folder) }

// tries numbers the groups that are made only to try.
var tries atomic.Int32

// supported returns why processes of this machine cannot be frozen; nil if they can. It makes a group and removes it.
func supported() error {
	all, err := freezersOf(os.Getpid())
	if err != nil {
		return err
	}
	try, err := all[0].below(groupName(frozenPrefix, proc.ThisProgram(), int(-tries.Add(1))))
	if err != nil {
		return err
	}
	return try.remove()
}
