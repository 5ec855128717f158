package agent

import (
	"bytes"
	"context"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lockquake/lockquake/internal/clock"
)

// doReadClocks has a process read its wall clock and its monotonic clock.
func doReadClocks(ctx context.Context, c call) (any, error) {
	var out ClocksRead
	v, err := readVDSO(c.process.PID)
	if err != nil {
		return nil, err
	}
	function, err := v.function("__vdso_clock_gettime")
	if err != nil {
		return nil, err
	}
	err = halting(ctx, c.process.PID, func(h *halted) error {
		for _, one := range []struct {
			clock int
			into  *int64
		}{{unix.CLOCK_REALTIME, &out.Wall}, {unix.CLOCK_MONOTONIC, &out.Mono}} {
			at, err := h.clockGettime(function, one.clock)
			if err != nil {
				return err
			}
			*one.into = at
		}
		return nil
	})
	return out, err
}

// function returns the address of a function of the vDSO in the process.
func (v vdso) function(name string) (uint64, error) {
	f, err := elf.NewFile(bytes.NewReader(v.image))
	if err != nil {
		return 0, fmt.Errorf("the vDSO is no ELF image: %w", err)
	}
	symbols, err := f.DynamicSymbols()
	if err != nil {
		return 0, fmt.Errorf("symbols of the vDSO: %w", err)
	}
	for _, s := range symbols {
		if s.Name == name {
			return v.base + s.Value, nil
		}
	}
	return 0, fmt.Errorf("the vDSO has no %s", name)
}

// The room that a borrowed call has on the stack of its thread: below what the thread may use without moving its stack pointer. All
// of it is put back, so it need not be free.
const (
	redZone  = 256
	callRoom = 1024
)

// clockGettime makes a held thread call clock_gettime, and leaves it as it was.
func (h *halted) clockGettime(function uint64, which int) (ns int64, err error) {
	tid, err := h.borrowable()
	if err != nil {
		return 0, err
	}
	var own unix.PtraceRegs
	if err := unix.PtraceGetRegs(tid, &own); err != nil {
		return 0, fmt.Errorf("registers of thread %d: %w", tid, err)
	}
	mem, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", h.pid), os.O_RDWR, 0)
	if err != nil {
		return 0, absent(err)
	}
	defer func() { _ = mem.Close() }()
	// From low to high: room for the call, its return address (zero: nothing is there to return to), the timespec, what is in use.
	spec := (stackPointer(&own) - redZone) &^ 15
	saved := make([]byte, callRoom)
	low := int64(spec) + 16 - callRoom
	if _, err := mem.ReadAt(saved, low); err != nil {
		return 0, fmt.Errorf("stack of thread %d: %w", tid, err)
	}
	defer func() {
		_, werr := mem.WriteAt(saved, low)
		err = errors.Join(err, werr, unix.PtraceSetRegs(tid, &own))
	}()
	if _, err := mem.WriteAt(make([]byte, 8), int64(spec)-8); err != nil {
		return 0, fmt.Errorf("stack of thread %d: %w", tid, err)
	}
	borrowed := own
	setCall(&borrowed, function, uint64(which), spec)
	if err := unix.PtraceSetRegs(tid, &borrowed); err != nil {
		return 0, fmt.Errorf("registers of thread %d: %w", tid, err)
	}
	if err := h.runToEnd(tid); err != nil {
		return 0, err
	}
	got := make([]byte, 16)
	if _, err := mem.ReadAt(got, int64(spec)); err != nil {
		return 0, fmt.Errorf("stack of thread %d: %w", tid, err)
	}
	return int64(binary.LittleEndian.Uint64(got))*int64(time.Second) + int64(binary.LittleEndian.Uint64(got[8:])), nil
}

// runToEnd lets a thread go until it faults at address zero, where its call returns to. Other signals wait until it is released.
func (h *halted) runToEnd(tid int) error {
	if err := unix.PtraceCont(tid, 0); err != nil {
		return fmt.Errorf("let thread %d go: %w", tid, err)
	}
	for end := clock.Now() + int64(haltTime); ; {
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
				_ = unix.Tgkill(h.pid, tid, signal) // again, once it goes on
			} else if signal != 0 {
				h.threads[tid] = signal
			}
			if err := unix.PtraceCont(tid, 0); err != nil {
				return fmt.Errorf("let thread %d go: %w", tid, err)
			}
		case h.gone(tid):
			return ErrNoProcess
		case clock.Now() > end:
			return fmt.Errorf("thread %d does not return from reading the clock", tid)
		default:
			time.Sleep(20 * time.Microsecond)
		}
	}
}

// borrowable finds a thread that can be made to call something: one that a fault at address zero does not harm, which is how its end
// is seen. The kernel would end a thread that has the signal of such a fault blocked.
func (h *halted) borrowable() (int, error) {
	if runtime.GOARCH != "amd64" {
		return 0, fmt.Errorf("it cannot be asked on %s", runtime.GOARCH)
	}
	if h.paused {
		return 0, errors.New("it is stopped")
	}
	const segv = 1 << (uint(unix.SIGSEGV) - 1)
	for tid := range h.threads {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/status", h.pid, tid))
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
	return 0, errors.New("none of its threads can be borrowed")
}
