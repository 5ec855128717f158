package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// mover is the agent that moved a clock. It stands beside each shift, so that what a dead agent left can be told from what a
// living one still answers for.
type mover struct {
	PID   uint32 // in its own pid namespace
	NS    uint32 // that namespace's inode
	Start uint32 // its start, in clock ticks from boot; the low 32 bits
}

// thisMover is this process.
var thisMover = sync.OnceValue(func() mover {
	h := mover{PID: uint32(os.Getpid()), NS: pidNamespace()}
	if p, err := Find(os.Getpid()); err == nil {
		h.Start = uint32(p.Start)
	}
	return h
})

func pidNamespace() uint32 {
	var st unix.Stat_t
	if err := unix.Stat("/proc/self/ns/pid", &st); err != nil {
		return 0
	}
	return uint32(st.Ino)
}

// dead tells whether the mover is known to have ended, reaped or not. One of another pid namespace cannot be looked for from here.
func (h mover) dead() bool {
	if h.PID == 0 || h.NS != pidNamespace() {
		return false
	}
	start, err := startTime(int(h.PID))
	if err == nil && uint32(start) == h.Start {
		return !Process{PID: int(h.PID), Start: start}.Running()
	}
	return err == nil || errors.Is(err, ErrNoProcess)
}

// RestoreClocks sets right the wall clocks of all processes that an agent had moved that is dead now, and says which. The patch of a
// vDSO carries its own description, and what was there before is what the kernel gives to every process, so nothing need have been
// kept. Processes that this one may not look into are passed over.
func RestoreClocks(ctx context.Context) (restored []string, err error) {
	names, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list the processes: %w", err)
	}
	var errs []error
	for _, n := range names {
		pid, err := strconv.Atoi(n.Name())
		if err != nil || pid < 2 || pid == os.Getpid() || ctx.Err() != nil {
			continue
		}
		if how, err := restoreClock(ctx, pid); err != nil {
			errs = append(errs, fmt.Errorf("restore the clock of pid %d: %w", pid, err))
		} else if how != "" {
			restored = append(restored, fmt.Sprintf("clock of pid %d (%s)", pid, how))
		}
	}
	return restored, errors.Join(append(errs, ctx.Err())...)
}

// restoreClock looks at one process, and says what it set right.
func restoreClock(ctx context.Context, pid int) (how string, err error) {
	if path, err := faketimeFile(pid); err == nil {
		if by, stands := readStamp(pid, path); stands && by.dead() {
			return path, writeStamp(pid, path, 0, thisMover())
		}
	}
	own, err := ownVDSO()
	if err != nil {
		return "", nil //nolint:nilerr // no clock can be moved in this way here
	}
	v, err := readVDSO(pid)
	if err != nil {
		return "", nil //nolint:nilerr // it has ended, has none, or is not ours to look into
	}
	h, err := own.header(v.image)
	if err != nil || !h.stands() || !h.By.dead() {
		return "", nil //nolint:nilerr // the work of somebody else
	}
	if _, err := shiftProcess(ctx, pid, stubHeader{}); err != nil && !errors.Is(err, ErrNoProcess) {
		return "", err
	}
	return "vDSO", nil
}
