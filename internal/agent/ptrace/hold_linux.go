// Package ptrace holds all threads of a process for a moment, by ptrace, and can make one of them call a function
// meanwhile.
//
// Example: the wall clock of a running Go server is to be moved. Holder.Hold seizes its nine threads, and looks again
// until it finds no new one. If none of them is executing the bytes to be changed, these are written, and all threads
// continue. The server gets no signal and sees only a short delay.
package ptrace

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lockquake/lockquake/internal/agent/proc"
	"github.com/lockquake/lockquake/internal/clock"
)

// Held is a process all of whose threads are held by ptrace. That sends no signal, so an active pause is not touched: a
// stopped thread stays stopped after its release. If the agent dies, the kernel releases the threads.
type Held struct {
	PID     int
	Paused  bool                // it is also stopped by a signal, or by the freezer
	threads map[int]unix.Signal // by thread id: the signal that it was about to get
	seized  map[int]bool        // threads that were asked to stop and were not yet seen stopped
}

// New returns a process none of whose threads is held yet.
func New(pid int) *Held {
	return &Held{PID: pid, threads: make(map[int]unix.Signal), seized: make(map[int]bool)}
}

// HoldTime bounds the wait for the threads of one process: a thread in uninterruptible sleep cannot be held.
const HoldTime = 2 * time.Second

// holdings are the processes being held: the kernel allows one tracer for each.
var holdings = pidLocks{busy: make(map[int]chan struct{})}

// Holder holds processes. Its functions come from mechanisms of the agent that act on the same threads; nil if there
// are none.
type Holder struct {
	// Untraced calls do while no other part of this program traces the process: the kernel allows one tracer.
	Untraced func(ctx context.Context, pid int, do func() error) error
	// Thaw wakes frozen threads that ptrace cannot reach. again, never nil, freezes them again before the process is
	// released.
	Thaw func(ctx context.Context, h *Held) (again func() error, err error)
}

// Hold holds all threads of a process while do runs.
func (o Holder) Hold(ctx context.Context, pid int, do func(*Held) error) error {
	if err := holdings.lock(ctx, pid); err != nil {
		return fmt.Errorf("pid %d is already held: %w", pid, err)
	}
	defer holdings.unlock(pid)
	hold := func() error { return o.hold(ctx, pid, do) }
	if o.Untraced == nil {
		return hold()
	}
	return o.Untraced(ctx, pid, hold)
}

// BusyError means that a thread of a held process is executing code that must not be changed now.
type BusyError string

func (e BusyError) Error() string { return string(e) }

// busyTime bounds the tries to find a moment in which no thread is in the way. The places are a few instructions long.
const busyTime = time.Second

// HoldFree repeats Hold while do returns a BusyError.
func (o Holder) HoldFree(ctx context.Context, pid int, do func(*Held) error) error {
	for end := clock.Now() + int64(busyTime); ; {
		err := o.Hold(ctx, pid, do)
		if busy := BusyError(""); !errors.As(err, &busy) || ctx.Err() != nil || clock.Now() > end {
			return err
		}
		// random, so as not to be in step with the process
		time.Sleep(time.Duration(100+clock.Now()%400) * time.Microsecond)
	}
}

// pidLocks is a lock for each pid.
type pidLocks struct {
	mu   sync.Mutex
	busy map[int]chan struct{} // closed when the pid is unlocked
}

func (t *pidLocks) lock(ctx context.Context, pid int) error {
	for {
		t.mu.Lock()
		before, busy := t.busy[pid]
		if !busy {
			t.busy[pid] = make(chan struct{})
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

func (t *pidLocks) unlock(pid int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	close(t.busy[pid])
	delete(t.busy, pid)
}

// hold holds an untraced process. All ptrace requests must come from one thread of ours.
func (o Holder) hold(ctx context.Context, pid int, do func(*Held) error) error {
	ctx, cancel := context.WithTimeout(ctx, HoldTime)
	defer cancel()
	var err error
	proc.OnEndedThread(func() {
		h := New(pid)
		again := func() error { return nil }
		if o.Thaw != nil {
			again, err = o.Thaw(ctx, h)
		}
		if err == nil {
			err = h.HoldAll(ctx)
		}
		if err == nil {
			err = do(h)
		}
		err = errors.Join(err, again(), h.Release())
	})
	return err
}

// HoldAll holds one thread after the other until no new one is found: only a thread that is not yet held can start
// another.
func (h *Held) HoldAll(ctx context.Context) error {
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

// each calls take for every thread, until a round takes none.
func (h *Held) each(take func(tid int) (took bool, err error)) error {
	for {
		names, err := proc.TaskNames("/proc/" + strconv.Itoa(h.PID) + "/task")
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
			return proc.ErrNoProcess
		case news == 0:
			return nil
		}
	}
}

// SeizeAll asks every thread to stop, without waiting for it.
func (h *Held) SeizeAll() error {
	return h.each(func(tid int) (bool, error) {
		before := len(h.seized)
		err := h.seize(tid)
		return len(h.seized) > before, err
	})
}

// seize asks a thread to stop, once. A thread that ended meanwhile is skipped.
func (h *Held) seize(tid int) error {
	if h.seized[tid] {
		return nil
	}
	err := unix.PtraceSeize(tid)
	switch {
	case errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EPERM) && h.gone(tid):
		return nil
	case err != nil:
		return fmt.Errorf("ptrace of thread %d of pid %d%s: %w", tid, h.PID, TracedBy(h.PID), err)
	}
	h.seized[tid] = true
	if err := unix.PtraceInterrupt(tid); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("interrupt thread %d of pid %d: %w", tid, h.PID, err)
	}
	return nil
}

// await returns when a thread that was seized has stopped, or has ended.
func (h *Held) await(ctx context.Context, tid int) error {
	for {
		stop, err := stopOf(tid)
		if stop.seen {
			delete(h.seized, tid)
			h.threads[tid] = stop.signal
			h.Paused = h.Paused || stop.paused
		}
		if err != nil || stop.seen {
			return err
		}
		if h.gone(tid) {
			delete(h.seized, tid)
			return nil
		}
		if clock.Sleep(ctx, 100*time.Microsecond) != nil {
			return fmt.Errorf("thread %d of pid %d cannot be held: %w", tid, h.PID, ctx.Err())
		}
	}
}

// stop is how a traced thread stopped.
type stop struct {
	seen   bool
	signal unix.Signal // that the thread was about to get
	paused bool        // it was stopped by a signal already
}

// stopOf returns how a traced thread stopped. It peeks first: if the process is also our child, its exit status is left
// to the code that waits for it.
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

// gone reports whether the thread has ended.
func (h *Held) gone(tid int) bool {
	fields, err := proc.StatFields(fmt.Sprintf("/proc/%d/task/%d/stat", h.PID, tid))
	return err != nil || fields[0][0] == 'Z' || fields[0][0] == 'X'
}

// Release releases all threads, with the signals that they were about to get.
func (h *Held) Release() error {
	var errs []error
	for tid := range h.seized { // one that has not stopped is released when our thread ends
		h.threads[tid] = 0
	}
	for tid, signal := range h.threads {
		if err := Request(unix.PTRACE_DETACH, tid, 0, uintptr(signal)); err != nil && !errors.Is(err, unix.ESRCH) {
			errs = append(errs, fmt.Errorf("let thread %d of pid %d go: %w", tid, h.PID, err))
		}
	}
	return errors.Join(errs...)
}

// Inside returns how many threads have their program counter strictly between the two addresses.
func (h *Held) Inside(from, to uint64) (int, error) {
	n := 0
	for tid := range h.threads {
		pc, err := programCounter(tid)
		if errors.Is(err, unix.ESRCH) {
			continue // it was killed
		}
		if err != nil {
			return 0, fmt.Errorf("registers of thread %d of pid %d: %w", tid, h.PID, err)
		}
		if pc > from && pc < to {
			n++
		}
	}
	return n, nil
}

// TracedBy names the tracer of a process, for an error; "" if it has none.
func TracedBy(pid int) string {
	if who := TracerOf("/proc/" + strconv.Itoa(pid)); who != 0 {
		return fmt.Sprintf(", which pid %d traces", who)
	}
	return ""
}

// TracerOf returns the id of the thread that traces a thread; 0 for none.
func TracerOf(task string) int {
	b, _ := os.ReadFile(task + "/status")
	for line := range strings.Lines(string(b)) {
		if who, ok := strings.CutPrefix(line, "TracerPid:"); ok {
			pid, _ := strconv.Atoi(strings.TrimSpace(who))
			return pid
		}
	}
	return 0
}

// Ours reports whether a thread is one of this program.
func Ours(tid int) bool {
	if tid == 0 {
		return false
	}
	_, err := os.Stat("/proc/self/task/" + strconv.Itoa(tid))
	return err == nil
}

// Request makes a ptrace request from the calling thread.
func Request(request, tid int, addr, data uintptr) error {
	_, _, errno := unix.Syscall6(unix.SYS_PTRACE, uintptr(request), uintptr(tid), addr, data, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}
