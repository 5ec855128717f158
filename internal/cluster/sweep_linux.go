package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/lockquake/lockquake/internal/agent"
	"github.com/lockquake/lockquake/internal/clock"
)

// processes kills the children of dead supervisors. They are known by their environment, which a process keeps whatever
// becomes of its parent.
func (s *Swept) processes(ctx context.Context, o SweepOptions) error {
	paths, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		return fmt.Errorf("list processes: %w", err)
	}
	var errs []error
	for _, path := range paths {
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil || pid == os.Getpid() || pid == os.Getppid() {
			continue
		}
		p, err := agent.Find(pid)
		if err != nil {
			continue // it ended, or it is process 1
		}
		own, name, ok := markedProcess(path)
		if !ok {
			continue
		}
		what := fmt.Sprintf("%s of run %s (pid %d)", name, own.Run, pid)
		if !own.leftover(o.All) {
			s.leave("process "+what, own)
			continue
		}
		if err := killOrphan(ctx, p); err != nil {
			errs = append(errs, fmt.Errorf("kill %s: %w", what, err))
			continue
		}
		s.Processes = append(s.Processes, what)
	}
	return errors.Join(errs...)
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
func killOrphan(ctx context.Context, p agent.Process) error {
	if err := p.Signal("KILL"); err != nil && !errors.Is(err, agent.ErrNoProcess) {
		return err
	}
	for range 200 {
		s, err := p.Inspect()
		if err != nil {
			return err
		}
		if observed(s).Gone() {
			return nil
		}
		if clock.Sleep(ctx, 10*time.Millisecond) != nil {
			return ctx.Err()
		}
	}
	return errors.New("it does not die")
}

// links removes the supervisor's ends of networks; with the last process gone, the rest of a network goes with its end.
func (s *Swept) links(o SweepOptions) error {
	marked, err := markedLinks()
	if err != nil {
		return err
	}
	var errs []error
	for name, own := range marked {
		if !own.leftover(o.All) {
			s.leave("link "+name, own)
			continue
		}
		if err := removeLink(name); err != nil {
			errs = append(errs, err)
			continue
		}
		s.Links = append(s.Links, name)
	}
	return errors.Join(errs...)
}
