package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lockquake/lockquake/internal/agent/proc"
	"github.com/lockquake/lockquake/internal/clock"
)

// marked is a process of a local run.
type marked struct {
	proc.Process
	owner owner
	node  string
}

// markedProcesses lists the processes of recorded runs. Servers are known by their user, which no other process has. All others are known
// by their environment, which must name a recorded run. The environment of another user's process is not read: that can block for as
// long as that user likes.
func markedProcesses() ([]marked, error) {
	runs, err := recorded()
	if err != nil || len(runs) == 0 {
		return nil, err
	}
	servers := map[int]owner{}
	for run, o := range runs {
		servers[int(serverIdentity(run))] = o
	}
	delete(servers, 0) // nobody's own
	paths, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var out []marked
	for _, entry := range paths {
		pid, err := strconv.Atoi(filepath.Base(entry))
		if err != nil || pid == os.Getpid() || pid == os.Getppid() {
			continue
		}
		p, err := proc.Find(pid)
		if err != nil {
			continue // it ended, or it is process 1
		}
		user, err := userOf(entry)
		if err != nil {
			continue
		}
		if o, ok := servers[user]; ok {
			// Programs that show a title write it over their environment. All begin in the node's data directory.
			dir, _ := os.Readlink(entry + "/cwd")
			out = append(out, marked{p, o, filepath.Base(dir)})
		} else if user == os.Geteuid() {
			if o, name, ok := markedProcess(entry + "/environ"); ok && runs[o.Run] == o {
				out = append(out, marked{p, o, name})
			}
		}
	}
	return slices.DeleteFunc(out, func(m marked) bool { return !nodeName.MatchString(m.node) }), nil
}

// userOf tells by its entry in /proc whose a process is.
func userOf(entry string) (int, error) {
	var st unix.Stat_t
	err := unix.Stat(entry, &st)
	return int(st.Uid), err
}

// processes kills the children of dead supervisors.
func (s *Swept) processes(ctx context.Context, o SweepOptions) error {
	found, err := markedProcesses()
	errs := []error{err}
	for _, p := range found {
		what := fmt.Sprintf("%s of run %s (pid %d)", p.node, p.owner.Run, p.PID)
		if !p.owner.leftover(o.All) {
			s.leave("process "+what, p.owner)
			continue
		}
		if err := o.unlessLook(func() error { return killOrphan(ctx, p.Process) }); err != nil {
			errs = append(errs, fmt.Errorf("kill %s: %w", what, err))
			continue
		}
		s.Processes = append(s.Processes, what)
	}
	return errors.Join(errs...)
}

// clocksHere lists the processes of local runs whose clocks an agent may have moved.
func clocksHere() []clockOf {
	found, err := markedProcesses()
	if err != nil {
		return nil // told when they were swept
	}
	out := make([]clockOf, 0, len(found))
	for _, p := range found {
		out = append(out, clockOf{p.Process, faketimeHere(stateOf(p.owner.Run), p.node)})
	}
	return out
}

// markedProcess reads the marks of a run's child; others' processes, whose environment cannot be read, have none.
func markedProcess(path string) (o owner, name string, ok bool) {
	env, err := os.ReadFile(path)
	if err != nil || !bytes.Contains(env, []byte(ownerVariable)) {
		return owner{}, "", false
	}
	for setting := range bytes.SplitSeq(env, []byte{0}) {
		if value, found := bytes.CutPrefix(setting, []byte(ownerVariable)); found {
			o, ok = ownerTag(string(value))
		}
		if value, found := bytes.CutPrefix(setting, []byte("LOCKQUAKE_NODE=")); found {
			name = string(value)
		}
	}
	return o, name, ok
}

// killOrphan kills a process, stopped or not, and waits until it is gone.
func killOrphan(ctx context.Context, p proc.Process) error {
	if err := p.Signal("KILL"); err != nil && !errors.Is(err, proc.ErrNoProcess) {
		return err
	}
	for range 200 {
		s, err := p.Inspect()
		if err != nil {
			return err
		}
		if s.Gone() {
			return nil
		}
		if clock.Sleep(ctx, 10*time.Millisecond) != nil {
			return ctx.Err()
		}
	}
	return errors.New("it does not die")
}
