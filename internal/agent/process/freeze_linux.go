package process

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/lockquake/lockquake/chaos/process"
	"github.com/lockquake/lockquake/internal/agent"
	"github.com/lockquake/lockquake/internal/agent/cgroup"
	"github.com/lockquake/lockquake/internal/agent/proc"
	"github.com/lockquake/lockquake/internal/clock"
)

// frozenPrefix is the name prefix of the groups that an agent makes. The agent's mark follows, which distinguishes the
// leftovers of a dead agent from what a living one will still undo.
const frozenPrefix = "lockquake-frozen-"

// freezing is a process that was frozen, or is to be.
type freezing struct {
	process proc.Process
	by      freezer
	from    *freezer // the group of its processes before; nil if the engine's group is frozen

	mu sync.Mutex // held while it is thawed, permanently or for a moment
}

// freezings has the active freezes of each process of the run.
var freezings sync.Map // Process -> *freezing

func freeze(ctx context.Context, c agent.Call, args process.FreezeArgs) (any, error) {
	all, err := freezersOf(c.Process.PID)
	if err != nil {
		return nil, err
	}
	if all[0].readOnly {
		return nil, fmt.Errorf("the control group %s is mounted read-only", all[0].group)
	}
	f := &freezing{process: c.Process, by: all[0]}
	c.Stand(f.undo)
	freezings.Store(c.Process, f)
	if args.Engine {
		return nil, nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.from = &all[0]
	if f.by, err = all[0].below(groupName(frozenPrefix, proc.ThisProgram(), c.Process.PID)); err != nil {
		return nil, err
	}
	if err := gather(f.process.PID, f.by.folder); err != nil {
		return nil, err
	}
	return nil, f.by.set(ctx, true)
}

// undo thaws the process and moves it back to its group.
func (f *freezing) undo(ctx context.Context) (any, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	freezings.Delete(f.process)
	var err error
	if f.from != nil {
		err = f.by.thawAndRemove(ctx, *f.from)
	} else if frozen, _, failed := f.by.state(); failed == nil && frozen {
		err = f.by.set(ctx, false)
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil // the group vanished with the process
	}
	out, failed := AskFrozen(f.process)
	return out, errors.Join(err, failed)
}

func frozen(_ context.Context, c agent.Call) (any, error) { return AskFrozen(c.Process) }

// AskFrozen asks the kernel whether the process and its descendants are halted by the freezer.
func AskFrozen(p proc.Process) (process.Frozen, error) {
	if !p.Running() {
		return process.Frozen{Gone: true, Time: clock.Now()}, nil
	}
	all, err := freezersOf(p.PID)
	if errors.Is(err, proc.ErrNoProcess) {
		return process.Frozen{Gone: true, Time: clock.Now()}, nil
	}
	if err != nil {
		return process.Frozen{Unseen: err.Error(), Time: clock.Now()}, nil
	}
	var out process.Frozen
	at := all[0]
	for i := len(all) - 1; i >= 0; i-- {
		frozen, said, err := all[i].state()
		if err != nil {
			return out, err
		}
		if out.Said = said; frozen {
			out.Frozen, at = true, all[i]
			break
		}
	}
	out.Time = clock.Now()
	family, err := proc.Descendants(p.PID)
	if err != nil {
		return out, err
	}
	for _, pid := range family {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
		if err != nil {
			continue // it has ended
		}
		if group, _ := cgroup.Group(string(text), map[int]string{1: "freezer", 2: ""}[at.version]); group != at.group {
			out.Outside++
		}
		out.Ran += ran(pid)
	}
	out.Stop = stopWaits(p.PID)
	return out, nil
}

// ran returns the total CPU time of a process's threads, in ns.
func ran(pid int) int64 {
	var all int64
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid)) // the pattern is valid
	for _, file := range files {
		b, _ := os.ReadFile(file) // a thread may end meanwhile
		if f := strings.Fields(string(b)); len(f) > 0 {
			ns, _ := strconv.ParseInt(f[0], 10, 64)
			all += ns
		}
	}
	return all
}

// stopWaits reports whether a SIGSTOP is pending for a process.
func stopWaits(pid int) bool {
	const stop = 1 << (19 - 1)
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid)) // none is pending for an ended process
	for line := range strings.Lines(string(b)) {
		if hex, ok := strings.CutPrefix(line, "ShdPnd:"); ok {
			n, err := strconv.ParseUint(strings.TrimSpace(hex), 16, 64)
			return err == nil && n&stop != 0
		}
	}
	return false
}

// groupName returns an agent's name for the group of a process.
func groupName(prefix string, h proc.Program, pid int) string {
	return fmt.Sprintf("%s%d-%d-%d-%d", prefix, h.NS, h.PID, h.Start, pid)
}

// agentOf parses such a name.
func agentOf(prefix, name string) (h proc.Program, ok bool) {
	var pid int
	n, err := fmt.Sscanf(name, prefix+"%d-%d-%d-%d", &h.NS, &h.PID, &h.Start, &pid)
	return h, err == nil && n == 4
}

// restore thaws the processes that a dead agent had frozen or limited, removes its groups, and lists them. It searches
// the hierarchies that are mounted here.
func restore(ctx context.Context, _ agent.Call) (any, error) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("look for control groups: %w", err)
	}
	restored, errs := []string{}, []error{}
	for _, m := range cgroup.Mounts(string(mounts)) {
		limits := m.Version == 2 || m.Has("cpu")
		if !limits && !m.Has("freezer") {
			continue
		}
		_ = filepath.WalkDir(m.Point, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.IsDir() {
				return nil //nolint:nilerr // it vanished meanwhile, or may not be read
			}
			by, froze := agentOf(frozenPrefix, d.Name())
			limiter, limited := agentOf(limitedPrefix, d.Name())
			if !froze && !limited || !froze && !limiter.Dead() || froze && !by.Dead() || !madeByUs(d) {
				return nil
			}
			up := filepath.Dir(path)
			group := freezer{version: m.Version, folder: path, group: path}
			remove := func() error { return moveAndRemove(ctx, path, up) }
			if froze {
				parent := freezer{version: m.Version, folder: up, group: up}
				remove = func() error { return group.thawAndRemove(ctx, parent) }
			}
			if err := remove(); err != nil {
				errs = append(errs, fmt.Errorf("undo %s: %w", path, err))
				return fs.SkipDir
			}
			restored = append(restored, "control group "+path)
			return fs.SkipDir
		})
	}
	return restored, errors.Join(append(errs, ctx.Err())...)
}

// madeByUs reports whether a control group belongs to this user: another user can make groups of any name in a part of
// the hierarchy.
func madeByUs(d fs.DirEntry) bool {
	info, err := d.Info()
	if err != nil {
		return false
	}
	s, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(s.Uid) == os.Geteuid()
}
