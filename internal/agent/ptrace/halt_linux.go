// Package ptrace holds processes of other programs still for a moment, by ptrace, and has them call a function of theirs meanwhile.
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

// Held is a process all of whose threads are held by ptrace. No signal is sent for that, so a pause that stands is not
// touched: a thread that was stopped stays so when it is let go. Should the agent die, the kernel lets go.
type Held struct {
	PID     int
	Paused  bool                // it is stopped, by a signal or by the freezer, beside
	threads map[int]unix.Signal // by thread id: what it was about to be told
	seized  map[int]bool        // threads that are told to stop and have not been seen to
}

// New returns a process none of whose threads is held yet.
func New(pid int) *Held {
	return &Held{PID: pid, threads: make(map[int]unix.Signal), seized: make(map[int]bool)}
}

// HoldTime bounds the wait for the threads of one process: one that sleeps in the kernel, uninterruptible, cannot be held.
const HoldTime = 2 * time.Second

// holdings has a process id for each process that is being held: a second to ask waits, for only one can trace it.
var holdings = turns{busy: make(map[int]chan struct{})}

// MakeWay and Wake are set by those mechanisms of this program that hold processes in another way; none need be there.
var (
	// MakeWay calls do while nothing else of ours traces the process: only one thread can.
	MakeWay = func(_ context.Context, _ int, do func() error) error { return do() }
	// Wake wakes threads that sleep where ptrace does not reach them, before a process is held. What it returns, never nil, is called
	// before the process is let go, and puts them to sleep again.
	Wake = func(context.Context, *Held) (again func() error, err error) { return func() error { return nil }, nil }
)

// Hold holds all threads of a process while do runs. What else of ours traces it makes way.
func Hold(ctx context.Context, pid int, do func(*Held) error) error {
	if err := holdings.take(ctx, pid); err != nil {
		return fmt.Errorf("pid %d is held for something else: %w", pid, err)
	}
	defer holdings.leave(pid)
	return MakeWay(ctx, pid, func() error { return halt(ctx, pid, do) })
}

// BusyError says that the threads of a held process stand where nothing can be done with them now.
type BusyError string

func (e BusyError) Error() string { return string(e) }

// busyTime bounds the tries to find a moment in which no thread stands in the way. The places are a few instructions long.
const busyTime = time.Second

// HoldFree is Hold, again and again while do returns a BusyError.
func HoldFree(ctx context.Context, pid int, do func(*Held) error) error {
	for end := clock.Now() + int64(busyTime); ; {
		err := Hold(ctx, pid, do)
		if busy := BusyError(""); !errors.As(err, &busy) || ctx.Err() != nil || clock.Now() > end {
			return err
		}
		time.Sleep(time.Duration(100+clock.Now()%400) * time.Microsecond) // not in step with what it does
	}
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
func halt(ctx context.Context, pid int, do func(*Held) error) error {
	ctx, cancel := context.WithTimeout(ctx, HoldTime)
	defer cancel()
	var err error
	proc.OnEndedThread(func() {
		h := New(pid)
		again, failed := Wake(ctx, h)
		if err = failed; err == nil {
			err = h.HoldAll(ctx)
		}
		if err == nil {
			err = do(h)
		}
		err = errors.Join(err, again(), h.Release())
	})
	return err
}

// HoldAll takes one thread after the other until no new one is found: only one that is not yet held can start another.
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

// each calls take for every thread until there was none that it took.
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

// SeizeAll tells every thread to stop, and does not wait until it has.
func (h *Held) SeizeAll() error {
	return h.each(func(tid int) (bool, error) {
		before := len(h.seized)
		err := h.seize(tid)
		return len(h.seized) > before, err
	})
}

// seize tells a thread to stop, once. One that ended meanwhile is passed over.
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
func (h *Held) gone(tid int) bool {
	fields, err := proc.StatFields(fmt.Sprintf("/proc/%d/task/%d/stat", h.PID, tid))
	return err != nil || fields[0][0] == 'Z' || fields[0][0] == 'X'
}

// Release lets all threads go, with the signals that they were about to be told.
func (h *Held) Release() error {
	var errs []error
	for tid := range h.seized { // one that has not stopped is let go by the end of our thread
		h.threads[tid] = 0
	}
	for tid, signal := range h.threads {
		if err := Request(unix.PTRACE_DETACH, tid, 0, uintptr(signal)); err != nil && !errors.Is(err, unix.ESRCH) {
			errs = append(errs, fmt.Errorf("let thread %d of pid %d go: %w", tid, h.PID, err))
		}
	}
	return errors.Join(errs...)
}

// Inside returns how many threads would go on strictly between the two addresses.
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

// TracedBy says who traces a process, where somebody does.
func TracedBy(pid int) string {
	if who := TracerOf("/proc/" + strconv.Itoa(pid)); who != 0 {
		return fmt.Sprintf(", which pid %d traces", who)
	}
	return ""
}

// TracerOf returns the number of the thread that traces a thread; 0 for nobody.
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

// Ours tells whether a thread is one of this program.
func Ours(tid int) bool {
	if tid == 0 {
		return false
	}
	_, err := os.Stat("/proc/self/task/" + strconv.Itoa(tid))
	return err == nil
}

// Request makes a request to ptrace from the calling thread.
func Request(request, tid int, addr, data uintptr) error {
	_, _, errno := unix.Syscall6(unix.SYS_PTRACE, uintptr(request), uintptr(tid), addr, data, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}
