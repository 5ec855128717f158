package disk

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/lockquake/lockquake/internal/agent/proc"
	"github.com/lockquake/lockquake/internal/agent/ptrace"
	"github.com/lockquake/lockquake/internal/clock"
)

// tracer is one thread that traces the system calls of a process and its descendants, and delays those that wait for a
// disk.
type tracer struct {
	process proc.Process
	only    []string // name prefixes of the threads to trace; empty: all
	by      atomic.Int64
	quit    chan struct{}
	quitted sync.Once
	done    chan struct{} // closed when the goroutine ends; the thread ends right after

	threads map[int]*tracee // by thread id; the tracer's own
	groups  []int           // processes to search for threads

	mu   sync.Mutex
	seen counts
}

// tracee is one thread that is traced.
type tracee struct {
	held  int64 // since when, in ns of CLOCK_MONOTONIC; 0: not held
	until int64
}

// trace starts a tracer, and returns when it traces all current threads.
func trace(p proc.Process, only []string, by time.Duration) (*tracer, error) {
	t := &tracer{
		process: p, only: only, quit: make(chan struct{}), done: make(chan struct{}),
		threads: map[int]*tracee{},
	}
	t.by.Store(int64(by))
	ready := make(chan error, 1)
	go proc.OnOwnThread(func() { t.run(ready) }) // when the thread ends the kernel releases its tracees
	return t, <-ready
}

// end releases everything, and waits until the kernel confirms it.
func (t *tracer) end(ctx context.Context) error {
	t.quitted.Do(func() { close(t.quit) })
	<-t.done
	for {
		n, err := tracedThreads(t.process)
		if err != nil || n == 0 {
			return err
		}
		if clock.Sleep(ctx, 200*time.Microsecond) != nil {
			return fmt.Errorf("%d threads of pid %d are still traced: %w", n, t.process.PID, ctx.Err())
		}
	}
}

// over reports whether it ended by itself.
func (t *tracer) over() bool {
	select {
	case <-t.done:
		return true
	default:
		return false
	}
}

func (t *tracer) counts() counts {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.seen
}

// run is called on a thread of its own.
func (t *tracer) run(ready chan<- error) {
	defer close(t.done)
	defer t.letGo()
	children := make(chan os.Signal, 1)
	signal.Notify(children, unix.SIGCHLD)
	defer signal.Stop(children)
	family, err := proc.Descendants(t.process.PID)
	if err == nil {
		t.groups = family
		err = t.scan()
	}
	ready <- err
	if err != nil {
		return
	}
	again := time.NewTicker(rescan)
	defer again.Stop()
	for {
		more := t.collectSome()
		due := time.NewTimer(t.letDue())
		select {
		case <-more:
		case <-children:
		case <-due.C:
		case <-again.C:
			if !t.process.Running() || t.scan() != nil {
				return
			}
		case <-t.quit:
			return
		}
		due.Stop()
	}
}

// always is closed, so a receive never blocks.
var always = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// collectSome takes the pending events, but not so many that other work starves. The channel is ready if there may be
// more.
func (t *tracer) collectSome() <-chan struct{} {
	for range 64 {
		if !t.collect() {
			return nil
		}
	}
	return always
}

// letGo counts the calls released early, by the end of the thread.
func (t *tracer) letGo() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.seen.early += int64(t.seen.holding)
	t.seen.holding = 0
}

// collect takes one event, if there is one.
func (t *tracer) collect() bool {
	var status unix.WaitStatus
	// Only for tracees of this thread: children of the program belong to other threads.
	tid, err := unix.Wait4(-1, &status, unix.WNOHANG|unix.WALL|unix.WNOTHREAD, nil)
	if errors.Is(err, unix.EINTR) {
		return true
	}
	if err != nil || tid <= 0 {
		return false
	}
	if !status.Stopped() {
		t.forget(tid)
		return true
	}
	one := t.threads[tid]
	if one == nil { // born traced
		one = &tracee{}
		t.threads[tid] = one
	}
	sig, event := status.StopSignal(), int(status)>>16
	switch {
	case event == 0 && sig == unix.SIGTRAP|0x80:
		if by := time.Duration(t.by.Load()); t.waitsForDisk(tid) && by > 0 {
			t.hold(one, by)
			return true
		}
		t.goOn(tid, 0)
	case event == unix.PTRACE_EVENT_STOP && stops(sig):
		_ = ptrace.Request(unix.PTRACE_LISTEN, tid, 0, 0) // it stays stopped, but can be continued
	case event == unix.PTRACE_EVENT_FORK || event == unix.PTRACE_EVENT_VFORK:
		if child, err := unix.PtraceGetEventMsg(tid); err == nil {
			t.groups = append(t.groups, int(child))
		}
		t.goOn(tid, 0)
	case event != 0:
		t.goOn(tid, 0)
	default:
		t.goOn(tid, sig)
	}
	return true
}

func stops(sig unix.Signal) bool {
	return sig == unix.SIGSTOP || sig == unix.SIGTSTP || sig == unix.SIGTTIN || sig == unix.SIGTTOU
}

func (t *tracer) goOn(tid int, sig unix.Signal) {
	_ = ptrace.Request(unix.PTRACE_SYSCALL, tid, 0, uintptr(sig)) // one killed meanwhile needs no release
}

func (t *tracer) hold(one *tracee, by time.Duration) {
	one.held = clock.Now()
	one.until = one.held + int64(by)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.seen.held++
	t.seen.holding++
}

// forget is called when a thread has ended.
func (t *tracer) forget(tid int) {
	if one := t.threads[tid]; one != nil && one.held != 0 {
		t.mu.Lock()
		t.seen.holding--
		t.seen.early++
		t.mu.Unlock()
	}
	delete(t.threads, tid)
}

// letDue releases calls that were held long enough, and returns the time until the next one is due.
func (t *tracer) letDue() time.Duration {
	now, next := clock.Now(), time.Hour
	for tid, one := range t.threads {
		if one.held == 0 {
			continue
		}
		if left := time.Duration(one.until - now); left > 0 {
			next = min(next, left)
			continue
		}
		t.goOn(tid, 0)
		took := time.Duration(now - one.held)
		*one = tracee{}
		t.mu.Lock()
		t.seen.holding--
		if t.seen.least == 0 || took < t.seen.least {
			t.seen.least = took
		}
		t.mu.Unlock()
	}
	return next
}

// syscallInfo is the beginning of struct ptrace_syscall_info of ptrace(2), since Linux 5.3.
type syscallInfo struct {
	op   uint8
	_    [3]byte
	arch uint32
	ip   uint64
	sp   uint64
	nr   uint64
	_    [6]uint64
}

const syscallEntry = 1 // PTRACE_SYSCALL_INFO_ENTRY

// diskCalls wait until data is on a disk.
var diskCalls = []uint64{unix.SYS_FSYNC, unix.SYS_FDATASYNC, unix.SYS_SYNCFS, unix.SYS_SYNC, unix.SYS_MSYNC}

// waitsForDisk reports whether a thread is about to enter such a call.
func (t *tracer) waitsForDisk(tid int) bool {
	var info syscallInfo
	_, _, errno := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_GET_SYSCALL_INFO, uintptr(tid), unsafe.Sizeof(info),
		uintptr(unsafe.Pointer(&info)), 0, 0)
	return errno == 0 && info.op == syscallEntry && slices.Contains(diskCalls, info.nr)
}

// rescan is how often the tracer looks for untraced threads: those that were stopped, and new ones if it traces only
// some.
const rescan = 50 * time.Millisecond

// scan takes the untraced threads. Threads stopped by a signal are left alone until they continue.
func (t *tracer) scan() error {
	for _, pid := range t.groups {
		dir := "/proc/" + strconv.Itoa(pid) + "/task/"
		names, err := proc.TaskNames(dir)
		if errors.Is(err, proc.ErrNoProcess) {
			continue
		}
		if err != nil {
			return err
		}
		for _, name := range names {
			tid, err := strconv.Atoi(name)
			if _, known := t.threads[tid]; known || err != nil || !t.wanted(dir+name) {
				continue
			}
			if err := t.take(pid, tid); err != nil {
				return err
			}
		}
	}
	return nil
}

// wanted reports whether a thread is to be traced now.
func (t *tracer) wanted(task string) bool {
	fields, err := proc.StatFields(task + "/stat")
	if err != nil || slices.Contains([]string{"T", "t", "Z", "X"}, string(fields[0])) {
		return false
	}
	if len(t.only) == 0 {
		return true
	}
	name, err := os.ReadFile(task + "/comm")
	return err == nil && slices.ContainsFunc(t.only,
		func(begin string) bool { return strings.HasPrefix(string(name), begin) })
}

// take begins to trace a thread. The thread stops once and then continues to its next system call.
func (t *tracer) take(pid, tid int) error {
	options := unix.PTRACE_O_TRACESYSGOOD
	if len(t.only) == 0 { // threads that it starts are traced too
		options |= unix.PTRACE_O_TRACECLONE | unix.PTRACE_O_TRACEFORK | unix.PTRACE_O_TRACEVFORK
	}
	err := ptrace.Request(unix.PTRACE_SEIZE, tid, 0, uintptr(options))
	switch {
	case errors.Is(err, unix.ESRCH):
		return nil
	case errors.Is(err, unix.EPERM) && ptrace.Ours(ptrace.TracerOf(fmt.Sprintf("/proc/%d/task/%d", pid, tid))):
		return nil // born traced; it will be met
	case err != nil:
		return fmt.Errorf("ptrace of thread %d of pid %d%s: %w", tid, pid, ptrace.TracedBy(pid), err)
	}
	t.threads[tid] = &tracee{}
	if err := ptrace.Request(unix.PTRACE_INTERRUPT, tid, 0, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("interrupt thread %d of pid %d: %w", tid, pid, err)
	}
	return nil
}
