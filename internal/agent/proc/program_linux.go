package proc

import (
	"errors"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// Program identifies a running program, even after its pid was reused. An agent marks whatever would outlive it with
// its own Program. This distinguishes the leftovers of a dead agent from what a living one will still undo.
type Program struct {
	PID   uint32 // in its own pid namespace
	NS    uint32 // that namespace's inode
	Start uint32 // its start, in clock ticks from boot; the low 32 bits
}

// ThisProgram returns the Program of this process.
var ThisProgram = sync.OnceValue(func() Program {
	h := Program{PID: uint32(os.Getpid()), NS: pidNamespace()}
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

// Dead reports whether the program is known to have ended, reaped or not. A program in another pid namespace cannot be
// checked from here.
func (h Program) Dead() bool {
	if h.PID == 0 || h.NS != pidNamespace() {
		return false
	}
	start, err := StartTime(int(h.PID))
	if err == nil && uint32(start) == h.Start {
		return !Process{PID: int(h.PID), Start: start}.Running()
	}
	return err == nil || errors.Is(err, ErrNoProcess)
}
