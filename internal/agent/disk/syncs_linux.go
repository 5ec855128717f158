package disk

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/lockquake/lockquake/chaos/disk"
	"github.com/lockquake/lockquake/internal/agent"
	"github.com/lockquake/lockquake/internal/agent/proc"
	"github.com/lockquake/lockquake/internal/agent/ptrace"
)

// slowed is a process whose calls to fsync are delayed.
//
// The tracer is a thread of the agent that ends when nothing is to be traced. The kernel then releases every thread of
// the target, so the death of the agent undoes this too. The tracer also ends while the target is stopped by a signal,
// since a traced thread does not show that it is stopped. And it ends while another thread of ours holds the target to
// move its clock.
//
// Example: slow-disk by 500 ms on redis-1. Its thread bio_aof calls fdatasync and stops at the entry of that call. 500
// ms later the tracer releases it, and the kernel begins to sync. Redis itself measures half a second for its sync.
type slowed struct {
	process proc.Process

	mu      sync.Mutex
	by      map[string]time.Duration // by the keys of the orders
	threads []string                 // name prefixes of the threads to trace; empty: all
	idle    int                      // reasons for which nothing may be traced now
	stopped bool                     // one of these: it is stopped by a signal
	tracer  *tracer                  // nil: none
	ended   counts                   // of ended tracers
}

// counts is what tracers counted.
type counts struct {
	held, early int64
	holding     int
	least       time.Duration
}

func (c counts) plus(o counts) counts {
	c.held, c.early, c.holding = c.held+o.held, c.early+o.early, c.holding+o.holding
	if c.least == 0 || o.least > 0 && o.least < c.least {
		c.least = o.least
	}
	return c
}

// slow has the delays of each process of the run.
var slow sync.Map // Process -> *slowed

// maxHold bounds one call.
const maxHold = time.Minute

func doSyncs(ctx context.Context, c agent.Call, args disk.SyncsArgs) (any, error) {
	by := time.Duration(args.By)
	if by <= 0 || by > maxHold {
		return nil, fmt.Errorf("a call cannot be delayed by %v: want more than 0s, at most %v", by, maxHold)
	}
	found, _ := slow.LoadOrStore(c.Process, &slowed{process: c.Process, by: map[string]time.Duration{}})
	s := found.(*slowed)
	c.Stand(func(ctx context.Context) (any, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.by, c.Key)
		err := s.adapt(ctx)
		out, seen := s.tell()
		if errors.Is(seen, proc.ErrNoProcess) {
			return out, nil // delayed calls ended with it
		}
		return out, errors.Join(err, seen)
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.by[c.Key], s.threads = by, args.Threads
	if err := s.adapt(ctx); err != nil {
		return nil, err
	}
	out, err := s.tell()
	return out, err
}

func doSynced(_ context.Context, c agent.Call) (any, error) {
	found, ok := slow.Load(c.Process)
	if !ok {
		return disk.Syncs{}, nil
	}
	s := found.(*slowed)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tell()
}

// sum returns how long each call is delayed. Called with mu held, like all below.
func (s *slowed) sum() time.Duration {
	var all time.Duration
	for _, by := range s.by {
		all += by
	}
	return all
}

// adapt starts or ends the tracer, as is needed now.
func (s *slowed) adapt(ctx context.Context) error {
	by := s.sum()
	if t := s.tracer; t != nil {
		if by > 0 && s.idle == 0 && !t.over() {
			t.by.Store(int64(by))
			return nil
		}
		s.tracer = nil
		err := t.end(ctx)
		s.ended = s.ended.plus(t.counts())
		if err != nil {
			return err
		}
	}
	if by == 0 || s.idle > 0 {
		return nil
	}
	t, err := trace(s.process, s.threads, by)
	s.tracer = t
	return err
}

// tell returns the counts, and asks the kernel for the traced threads.
func (s *slowed) tell() (disk.Syncs, error) {
	c := s.ended
	if s.tracer != nil {
		c = c.plus(s.tracer.counts())
	}
	out := disk.Syncs{Calls: c.held, Holding: c.holding, Early: c.early, Least: c.least}
	traced, err := tracedThreads(s.process)
	out.Traced = traced
	if err == nil && !s.process.Running() {
		err = proc.ErrNoProcess
	}
	out.Gone = errors.Is(err, proc.ErrNoProcess)
	return out, err
}

// tracedThreads counts the threads of a process and its descendants that this program traces.
func tracedThreads(p proc.Process) (int, error) {
	family, err := proc.Descendants(p.PID)
	if err != nil {
		return 0, err
	}
	n := 0
	for _, pid := range family {
		dir := "/proc/" + strconv.Itoa(pid) + "/task"
		names, err := proc.TaskNames(dir)
		if errors.Is(err, proc.ErrNoProcess) {
			continue
		}
		if err != nil {
			return n, err
		}
		for _, name := range names {
			if ptrace.Ours(ptrace.TracerOf(dir + "/" + name)) {
				n++
			}
		}
	}
	return n, nil
}

// Untraced calls do while this package does not trace the process, so that do can. Delayed calls are released early.
func Untraced(ctx context.Context, pid int, do func() error) error {
	var at []*slowed
	slow.Range(func(_, v any) bool {
		s := v.(*slowed)
		if family, err := proc.Descendants(s.process.PID); err == nil && slices.Contains(family, pid) {
			at = append(at, s)
		}
		return true
	})
	var err error
	for _, s := range at {
		err = errors.Join(err, s.suspend(ctx, 1))
	}
	if err == nil {
		err = do()
	}
	for _, s := range at {
		err = errors.Join(err, s.suspend(ctx, -1))
	}
	return err
}

// suspend adds a reason not to trace, or removes one with -1.
func (s *slowed) suspend(ctx context.Context, more int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.idle += more
	return s.adapt(ctx)
}

// signalled sends a signal while nothing is traced. A stopped process is traced again when it continues; a killed one
// never.
func signalled(p proc.Process, name string, send func() error) error {
	found, ok := slow.Load(p)
	if !ok || name == "TERM" || name == "INT" {
		return send()
	}
	s := found.(*slowed)
	s.mu.Lock()
	defer s.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), ptrace.HoldTime)
	defer cancel()
	if !s.stopped && name != "CONT" {
		s.stopped = true
		s.idle++
	}
	if name == "KILL" { // a held thread could not die before its release
		err := send()
		return errors.Join(err, s.adapt(ctx))
	}
	if err := s.adapt(ctx); err != nil {
		return err
	}
	err := send()
	if name == "CONT" && s.stopped && err == nil {
		s.stopped = false
		s.idle--
		err = s.adapt(ctx)
	}
	return err
}
