package agent

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// rescan is how often the tracer looks for threads that it does not trace yet: those that were stopped, and new ones where it
// only looks at some.
const rescan = 50 * time.Millisecond

// scan takes the threads that are not traced yet. Those that are stopped by a signal are left alone until they go on.
func (t *tracer) scan() error {
	for _, pid := range t.groups {
		dir := "/proc/" + strconv.Itoa(pid) + "/task/"
		names, err := taskNames(dir)
		if errors.Is(err, ErrNoProcess) {
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

// wanted tells whether a thread is to be traced now.
func (t *tracer) wanted(task string) bool {
	fields, err := statFields(task + "/stat")
	if err != nil || slices.Contains([]string{"T", "t", "Z", "X"}, string(fields[0])) {
		return false
	}
	if len(t.only) == 0 {
		return true
	}
	name, err := os.ReadFile(task + "/comm")
	return err == nil && slices.ContainsFunc(t.only, func(begin string) bool { return strings.HasPrefix(string(name), begin) })
}

// take begins to trace a thread. It stops once, and goes on from there to its next system call.
func (t *tracer) take(pid, tid int) error {
	options := unix.PTRACE_O_TRACESYSGOOD
	if len(t.only) == 0 { // what it starts is traced as well
		options |= unix.PTRACE_O_TRACECLONE | unix.PTRACE_O_TRACEFORK | unix.PTRACE_O_TRACEVFORK
	}
	err := ptrace(unix.PTRACE_SEIZE, tid, 0, uintptr(options))
	switch {
	case errors.Is(err, unix.ESRCH):
		return nil
	case errors.Is(err, unix.EPERM) && ours(tracerOf(fmt.Sprintf("/proc/%d/task/%d", pid, tid))):
		return nil // born traced; it will be met
	case err != nil:
		return fmt.Errorf("ptrace of thread %d of pid %d%s: %w", tid, pid, tracedBy(pid), err)
	}
	t.threads[tid] = &tracee{}
	if err := ptrace(unix.PTRACE_INTERRUPT, tid, 0, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("interrupt thread %d of pid %d: %w", tid, pid, err)
	}
	return nil
}
