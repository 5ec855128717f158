package agent

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lockquake/lockquake/internal/clock"
)

// halted is a process all of whose threads are held by ptrace. No signal is sent for that, so a pause that stands is not
// touched: a thread that was stopped stays so when it is let go. Should the agent die, the kernel lets go.
type halted struct {
	pid     int
	threads map[int]unix.Signal // by thread id: what it was about to be told
	seized  map[int]bool        // threads that are told to stop and have not been seen to
	paused  bool                // it is stopped, by a signal or by the freezer, beside
}

func newHalted(pid int) *halted {
	return &halted{pid: pid, threads: make(map[int]unix.Signal), seized: make(map[int]bool)}
}

// haltTime bounds the wait for the threads of one process: one that sleeps in the kernel, uninterruptible, cannot be held.
const haltTime = 2 * time.Second

// haltings has a process id for each process that is being held: a second to ask waits, for only one can trace it.
var haltings = turns{busy: make(map[int]chan struct{})}

// halting holds all threads of a process while do runs. What else of ours traces it makes way.
func halting(ctx context.Context, pid int, do func(*halted) error) error {
	if err := haltings.take(ctx, pid); err != nil {
		return fmt.Errorf("pid %d is held for something else: %w", pid, err)
	}
	defer haltings.leave(pid)
	return untraced(ctx, pid, func() error { return halt(ctx, pid, do) })
}

// turns lets one after the other do something about the same number.
type turns struct {
	mu   sync.Mutex
	busy map[int]chan struct{} // closed when it is the next one's turn
}

func (t *turns) take(ctx context.Context, number int) error {
	for {
		t.mu.Lock()
		before, busy := t.busy[number]
		if !busy {
			t.busy[number] = make(chan struct{})
		}
		t.mu.Unlock()
		if !busy {
			return nil
		}
		select {
		case <-before:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (t *turns) leave(number int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	close(t.busy[number])
	delete(t.busy, number)
}

// halt does so with a process that nobody traces. Every request to ptrace must come from one thread of ours.
func halt(ctx context.Context, pid int, do func(*halted) error) error {
	ctx, cancel := context.WithTimeout(ctx, haltTime)
	defer cancel()
	var err error
	onEndedThread(func() {
		h := newHalted(pid)
		cold, failed := melt(ctx, h)
		if err = failed; err == nil {
			err = h.hold(ctx)
		}
		if err == nil {
			err = do(h)
		}
		err = errors.Join(err, cold.freezeAgain(), h.release())
	})
	return err
}

// hold takes one thread after the other until no new one is found: only one that is not yet held can start another.
func (h *halted) hold(ctx context.Context) error {
	return h.each(func(tid int) (bool, error) {
		if _, held := h.threads[tid]; held {
			return false, nil
		}
		if err := h.seize(tid); err != nil || !h.seized[tid] {
			return false, err
		}
		if err := h.await(ctx, tid); err != nil {
			return false, err
		}
		_, held := h.threads[tid]
		return held, nil
	})
}

// each calls take for every thread until there was none that it took.
func (h *halted) each(take func(tid int) (took bool, err error)) error {
	for {
		names, err := taskNames("/proc/" + strconv.Itoa(h.pid) + "/task")
		if err != nil {
			return err
		}
		news := 0
		for _, name := range names {
			tid, err := strconv.Atoi(name)
			if err != nil {
				continue
			}
			took, err := take(tid)
			if err != nil {
				return err
			}
			if took {
				news++
			}
		}
		switch {
		case len(h.threads)+len(h.seized) == 0:
			return ErrNoProcess
		case news == 0:
			return nil
		}
	}
}

// seize tells a thread to stop, once. One that ended meanwhile is passed over.
func (h *halted) seize(tid int) error {
	if h.seized[tid] {
		return nil
	}
	err := unix.PtraceSeize(tid)
	switch {
	case errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EPERM) && h.gone(tid):
		return nil
	case err != nil:
		return fmt.Errorf("ptrace of thread %d of pid %d%s: %w", tid, h.pid, tracedBy(h.pid), err)
	}
	h.seized[tid] = true
	if err := unix.PtraceInterrupt(tid); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("interrupt thread %d of pid %d: %w", tid, h.pid, err)
	}
	return nil
}

// await returns when a thread that was seized has stopped, or has ended.
func (h *halted) await(ctx context.Context, tid int) error {
	for {
		stop, err := stopOf(tid)
		if stop.seen {
			delete(h.seized, tid)
			h.threads[tid] = stop.signal
			h.paused = h.paused || stop.paused
		}
		if err != nil || stop.seen {
			return err
		}
		if h.gone(tid) {
			delete(h.seized, tid)
			return nil
		}
		if clock.Sleep(ctx, 100*time.Microsecond) != nil {
			return fmt.Errorf("thread %d of pid %d cannot be held: %w", tid, h.pid, ctx.Err())
		}
	}
}

// stop is how a traced thread stopped.
type stop struct {
	seen   bool
	signal unix.Signal // that it was about to be told
	paused bool        // it was stopped by a signal already
}

// stopOf tells whether a thread that is traced has stopped. It looks first, so that the end of a process that is a child of ours as
// well is left to who waits for it.
func stopOf(tid int) (stop, error) {
	var info unix.Siginfo
	err := unix.Waitid(unix.P_PID, tid, &info, unix.WSTOPPED|unix.WNOHANG|unix.WNOWAIT|unix.WALL, nil)
	if err != nil || info.Signo == 0 {
		if errors.Is(err, unix.ECHILD) || errors.Is(err, unix.EINTR) {
			err = nil
		}
		return stop{}, err
	}
	var status unix.WaitStatus
	got, err := unix.Wait4(tid, &status, unix.WNOHANG|unix.WALL, nil)
	if err != nil || got != tid || !status.Stopped() {
		return stop{}, nil //nolint:nilerr // it was killed between the two looks
	}
	if event := int(status) >> 16; event == 0 {
		return stop{seen: true, signal: status.StopSignal()}, nil
	}
	return stop{seen: true, paused: status.StopSignal() != unix.SIGTRAP}, nil
}

// gone tells whether the thread has ended.
func (h *halted) gone(tid int) bool {
	fields, err := statFields(fmt.Sprintf("/proc/%d/task/%d/stat", h.pid, tid))
	return err != nil || fields[0][0] == 'Z' || fields[0][0] == 'X'
}

// release lets all threads go, with the signals that they were about to be told.
func (h *halted) release() error {
	var errs []error
	for tid := range h.seized { // one that has not stopped is let go by the end of our thread
		h.threads[tid] = 0
	}
	for tid, signal := range h.threads {
		_, _, errno := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_DETACH, uintptr(tid), 0, uintptr(signal), 0, 0)
		if errno != 0 && errno != unix.ESRCH {
			errs = append(errs, fmt.Errorf("let thread %d of pid %d go: %w", tid, h.pid, errno))
		}
	}
	return errors.Join(errs...)
}

// inside returns how many threads would go on strictly between the two addresses.
func (h *halted) inside(from, to uint64) (int, error) {
	n := 0
	for tid := range h.threads {
		pc, err := programCounter(tid)
		if errors.Is(err, unix.ESRCH) {
			continue // it was killed
		}
		if err != nil {
			return 0, fmt.Errorf("registers of thread %d of pid %d: %w", tid, h.pid, err)
		}
		if pc > from && pc < to {
			n++
		}
	}
	return n, nil
}

// tracedBy says who traces a process, where somebody does.
func tracedBy(pid int) string {
	if who := tracerOf("/proc/" + strconv.Itoa(pid)); who != 0 {
		return fmt.Sprintf(", which pid %d traces", who)
	}
	return ""
}
