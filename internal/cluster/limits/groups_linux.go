package limits

import (
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/internal/agent/cgroup"
	"github.com/lockquake/lockquake/internal/cluster/state"
	"github.com/lockquake/lockquake/internal/node"
)

// hierarchy has the folders in which control groups are made: one with both controllers (version 2), or one for each
// (version 1).
type hierarchy struct {
	version     int
	cpu, memory string // the same folder in version 2
}

func (h hierarchy) folders() []string { return slices.Compact([]string{h.cpu, h.memory}) }

// String names version and folders.
func (h hierarchy) String() string {
	return fmt.Sprintf("control groups of version %d below %s", h.version, strings.Join(h.folders(), " and "))
}

// findHierarchy looks for the controllers among the mounts. Version 1 groups are made below our own, so that our limits
// include them. Version 2 allows no groups below one with processes, unless it is the root.
func findHierarchy() (hierarchy, error) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return hierarchy{}, fmt.Errorf("look for control groups: %w", err)
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return hierarchy{}, fmt.Errorf("look for the own control group: %w", err)
	}
	one := hierarchy{version: 1}
	for _, m := range cgroup.Mounts(string(mounts)) {
		if m.Version == 2 {
			has, err := os.ReadFile(filepath.Join(m.Point, "cgroup.controllers"))
			if f := strings.Fields(string(has)); err == nil && slices.Contains(f, "cpu") &&
				slices.Contains(f, "memory") {
				return hierarchy{version: 2, cpu: m.Point, memory: m.Point}, nil
			}
			continue
		}
		if slices.Contains(m.Controllers, "cpu") {
			one.cpu = below(m, ownGroup(string(own), "cpu"))
		}
		if slices.Contains(m.Controllers, "memory") {
			one.memory = below(m, ownGroup(string(own), "memory"))
		}
	}
	if one.cpu == "" || one.memory == "" {
		return hierarchy{}, errors.New("no control group hierarchy with the controllers cpu and memory is mounted here")
	}
	return one, nil
}

// below returns the folder of a group, or the mount point if the group is outside the mount.
func below(m cgroup.Mount, group string) string {
	if path, ok := m.Folder("", group); ok {
		return path
	}
	return m.Point
}

// ownGroup reads from /proc/self/cgroup the group of one version 1 controller.
func ownGroup(text, controller string) string {
	if group, ok := cgroup.Group(text, controller); ok {
		return group
	}
	return "/"
}

// Groups has the control groups of a run: a folder in each hierarchy, and below it one for each node with limits.
type Groups struct {
	hierarchy
	Tops []string // the run's own folders
}

// groupsFile is the file in a run's directory that names the run's own folders, for Sweep.
const groupsFile = "groups"

// Open records the run's own folders in dir, and then makes them. On an error nothing is left.
func Open(run, dir string) (*Groups, error) {
	h, err := findHierarchy()
	if err != nil {
		return nil, err
	}
	g := &Groups{hierarchy: h}
	for _, f := range h.folders() {
		g.Tops = append(g.Tops, filepath.Join(f, "lockquake-"+run))
	}
	if err := os.WriteFile(filepath.Join(dir, groupsFile), []byte(strings.Join(g.Tops, "\n")), 0o600); err != nil {
		return nil, fmt.Errorf("write the run's state: %w", err)
	}
	for i, top := range g.Tops {
		err := os.Mkdir(top, 0o755)
		if err == nil && h.version == 2 {
			err = errors.Join(delegate(h.folders()[i]), delegate(top))
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("make a control group: %w", err), g.Remove())
		}
	}
	return g, nil
}

// delegate enables limits for the groups below a folder.
func delegate(folder string) error {
	const file, controllers = "cgroup.subtree_control", "+cpu +memory"
	has, err := os.ReadFile(filepath.Join(folder, file))
	if f := strings.Fields(string(has)); err == nil && slices.Contains(f, "cpu") && slices.Contains(f, "memory") {
		return nil
	}
	return os.WriteFile(filepath.Join(folder, file), []byte(controllers), 0)
}

// Remove removes the folders of the run.
func (g *Groups) Remove() error { return removeGroups(g.Tops) }

// removeGroups removes the folders of a run, with those of its nodes. A missing folder is no error.
func removeGroups(tops []string) error {
	var errs []error
	for _, top := range tops {
		nodes, _ := filepath.Glob(filepath.Join(top, "*", "cgroup.procs"))
		for _, file := range nodes {
			errs = append(errs, cgroup.Remove(filepath.Dir(file)))
		}
		errs = append(errs, cgroup.Remove(top))
	}
	return errors.Join(errs...)
}

// Sweep removes the control groups of the run with that directory.
func Sweep(dir string) error {
	tops, err := os.ReadFile(filepath.Join(dir, groupsFile))
	if err != nil || len(tops) == 0 {
		return nil //nolint:nilerr // a run without limits
	}
	return removeGroups(strings.Split(string(tops), "\n"))
}

// Group is the control group of one node.
type Group struct {
	hierarchy           // the node's own folders
	back      hierarchy // the groups of the run's thread
}

// cpuPeriod is the period of a CPU limit in µs, the kernel's own default.
const cpuPeriod = 100000

// Node makes the group of one node. The text describes the limits read back.
func (g *Groups) Node(name string, l node.Limits) (*Group, string, error) {
	n := &Group{back: g.hierarchy}
	n.version, n.cpu, n.memory = g.version, filepath.Join(g.Tops[0], name), filepath.Join(g.Tops[len(g.Tops)-1], name)
	for _, f := range n.folders() {
		if err := os.Mkdir(f, 0o755); err != nil {
			return nil, "", fmt.Errorf("make a control group: %w", err)
		}
	}
	var found []string
	for _, s := range n.settings(l) {
		path := filepath.Join(s.folder, s.file)
		if _, err := os.Stat(path); err != nil && s.optional {
			continue
		}
		if err := os.WriteFile(path, []byte(s.value), 0); err != nil {
			return nil, "", fmt.Errorf("limit %s: %w", name, err)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return nil, "", fmt.Errorf("limit %s: %w", name, err)
		}
		got := s.file + " " + strings.TrimSpace(string(b))
		if got != s.file+" "+s.value {
			return nil, "", NotHeld(l, got)
		}
		found = append(found, got)
	}
	return n, l.String() + " (" + strings.Join(found, ", ") + ")", nil
}

// Remove removes the group; a node without limits has none.
func (n *Group) Remove() error {
	if n == nil {
		return nil
	}
	var errs []error
	for _, f := range n.folders() {
		errs = append(errs, cgroup.Remove(f))
	}
	return errors.Join(errs...)
}

// setting is one file of a control group.
type setting struct {
	folder, file, value string
	optional            bool // kernels without swap accounting do not have it
}

func (n *Group) settings(l node.Limits) []setting {
	var out []setting
	quota := strconv.FormatInt(int64(math.Round(l.CPUs*cpuPeriod)), 10)
	// The kernel counts whole pages.
	memory := strconv.FormatInt(l.Memory-l.Memory%int64(os.Getpagesize()), 10)
	if l.CPUs != 0 && n.version == 2 {
		out = append(out, setting{folder: n.cpu, file: "cpu.max", value: quota + " " + strconv.Itoa(cpuPeriod)})
	} else if l.CPUs != 0 {
		out = append(out, setting{folder: n.cpu, file: "cpu.cfs_period_us", value: strconv.Itoa(cpuPeriod)},
			setting{folder: n.cpu, file: "cpu.cfs_quota_us", value: quota})
	}
	if l.Memory != 0 && n.version == 2 {
		out = append(out, setting{folder: n.memory, file: "memory.max", value: memory},
			setting{folder: n.memory, file: "memory.swap.max", value: "0", optional: true})
	} else if l.Memory != 0 {
		out = append(out, setting{folder: n.memory, file: "memory.limit_in_bytes", value: memory},
			setting{folder: n.memory, file: "memory.memsw.limit_in_bytes", value: memory, optional: true})
	}
	return out
}

// Enter makes the next child of the calling thread start within the group, so that it is never unlimited. back, never
// nil, undoes that for the thread itself.
func (n *Group) Enter(cmd *exec.Cmd) (back func() error, err error) {
	if n.version == 2 {
		f, err := os.Open(n.cpu)
		if err != nil {
			return func() error { return nil }, fmt.Errorf("open the control group: %w", err)
		}
		cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(f.Fd())
		return f.Close, nil
	}
	back = func() error { return moveThread(n.back) }
	return back, moveThread(n.hierarchy)
}

// moveThread moves the calling thread into version 1 groups: a child starts in the groups of its thread.
func moveThread(to hierarchy) error {
	id := []byte(strconv.Itoa(unix.Gettid()))
	for _, f := range to.folders() {
		if err := os.WriteFile(filepath.Join(f, "tasks"), id, 0); err != nil {
			return fmt.Errorf("enter the control group: %w", err)
		}
	}
	return nil
}

// Probe makes a group with limits and removes it.
func Probe() (string, error) {
	dir, remove, err := state.Scratch("probe")
	if err != nil {
		return "", err
	}
	defer func() { _ = remove() }()
	g, err := Open(fmt.Sprintf("p%x", os.Getpid()), dir)
	if err != nil {
		return "", Lacking(err)
	}
	_, _, err = g.Node("probe", node.Limits{CPUs: 1, Memory: 64 << 20})
	if err = errors.Join(err, g.Remove()); err != nil {
		return "", Lacking(err)
	}
	return g.hierarchy.String(), nil
}

// Lacking returns an error that says why this machine cannot limit a process, and what would help.
func Lacking(err error) error {
	return chaos.Unavailable{What: Unlimited, Reason: err.Error() +
		"; the local provider makes control groups, for which it needs root and a writable hierarchy: use --provider docker, or omit cpus and memory"}
}
