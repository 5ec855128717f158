package ptrace

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/lockquake/lockquake/internal/agent/proc"
	"github.com/lockquake/lockquake/internal/clock"
	"golang.org/x/sys/unix"
)

// The space of a borrowed call on its thread's stack: below what the thread may use without moving its stack pointer.
// All of it is restored, so it need not be free.
const (
	redZone  = 256
	callRoom = 1024
)

// Answer is what a called function writes to where its second argument points.
type Answer [16]byte

// Call makes a held thread call a function with a number and a pointer to an Answer on its stack, and restores the
// thread.
//
// Example: Call(address of clock_gettime, CLOCK_REALTIME). The thread's registers and 1 KiB of its stack are saved. Its
// program counter is set to the function, and the return address to zero. It runs until it faults there, which the
// kernel reports to the tracer instead of the process. The answer is read, registers and stack are restored, and the
// thread has noticed nothing.
func (h *Held) Call(function, first uint64) (answer Answer, err error) {
	tid, err := h.borrowable()
	if err != nil {
		return answer, err
	}
	var own unix.PtraceRegs
	if err := unix.PtraceGetRegs(tid, &own); err != nil {
		return answer, fmt.Errorf("registers of thread %d: %w", tid, err)
	}
	mem, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", h.PID), os.O_RDWR, 0)
	if err != nil {
		return answer, proc.Absent(err)
	}
	defer func() { _ = mem.Close() }()
	// From low to high: space for the call, its return address (zero, to fault on return), the answer, the part in use.
	at := (stackPointer(&own) - redZone) &^ 15
	saved := make([]byte, callRoom)
	low := int64(at) + int64(len(answer)) - callRoom
	if _, err := mem.ReadAt(saved, low); err != nil {
		return answer, fmt.Errorf("stack of thread %d: %w", tid, err)
	}
	defer func() {
		_, werr := mem.WriteAt(saved, low)
		err = errors.Join(err, werr, unix.PtraceSetRegs(tid, &own))
	}()
	if _, err := mem.WriteAt(make([]byte, 8), int64(at)-8); err != nil {
		return answer, fmt.Errorf("stack of thread %d: %w", tid, err)
	}
	borrowed := own
	setCall(&borrowed, function, first, at)
	if err := unix.PtraceSetRegs(tid, &borrowed); err != nil {
		return answer, fmt.Errorf("registers of thread %d: %w", tid, err)
	}
	if err := h.runToEnd(tid); err != nil {
		return answer, err
	}
	if _, err := mem.ReadAt(answer[:], int64(at)); err != nil {
		return answer, fmt.Errorf("stack of thread %d: %w", tid, err)
	}
	return answer, nil
}

// runToEnd runs a thread until it faults at address zero, to which its call returns. Other signals wait until it is
// released.
func (h *Held) runToEnd(tid int) error {
	if err := unix.PtraceCont(tid, 0); err != nil {
		return fmt.Errorf("let thread %d go: %w", tid, err)
	}
	for end := clock.Now() + int64(HoldTime); ; {
		stop, err := stopOf(tid)
		signal := stop.signal
		switch {
		case err != nil:
			return err
		case stop.seen && signal == unix.SIGSEGV:
			pc, err := programCounter(tid)
			if err == nil && pc != 0 {
				err = fmt.Errorf("thread %d ran into address %#x", tid, pc)
			}
			return err
		case stop.seen:
			if signal != 0 && h.threads[tid] != 0 {
				_ = unix.Tgkill(h.PID, tid, signal) // sent again, to arrive after its release
			} else if signal != 0 {
				h.threads[tid] = signal
			}
			if err := unix.PtraceCont(tid, 0); err != nil {
				return fmt.Errorf("let thread %d go: %w", tid, err)
			}
		case h.gone(tid):
			return proc.ErrNoProcess
		case clock.Now() > end:
			return fmt.Errorf("thread %d does not return from its call", tid)
		default:
			time.Sleep(20 * time.Microsecond)
		}
	}
}

// borrowable finds a thread that can be made to call something. The end of a call is seen as a fault at address zero,
// so that fault must not harm the thread. The kernel kills a thread that has its signal blocked. Threads of a starting
// Go program have it blocked for moments, while one thread creates another.
func (h *Held) borrowable() (int, error) {
	if runtime.GOARCH != "amd64" {
		return 0, fmt.Errorf("it cannot be read on %s", runtime.GOARCH)
	}
	if h.Paused {
		return 0, errors.New("it is stopped")
	}
	const segv = 1 << (uint(unix.SIGSEGV) - 1)
	for tid := range h.threads {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/status", h.PID, tid))
		if err != nil {
			continue
		}
		fit := 0
		for line := range strings.Lines(string(b)) {
			for _, mask := range []string{"SigBlk:", "SigIgn:", "ShdPnd:", "SigPnd:"} {
				if hex, ok := strings.CutPrefix(line, mask); ok {
					if n, err := strconv.ParseUint(strings.TrimSpace(hex), 16, 64); err == nil && n&segv == 0 {
						fit++
					}
				}
			}
		}
		if fit == 4 {
			return tid, nil
		}
	}
	return 0, BusyError("none of its threads can be used: each has SIGSEGV blocked, ignored or pending")
}
