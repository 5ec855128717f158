package cluster

import (
	"hash/fnv"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// identity is the user, and the group of the same number, of a local run's servers where the supervisor is root.
type identity uint32

// The numbers that identities are taken from: nobody gives these to users. The first range is between those of containers (as systemd
// counts them) and those that programs take for negative; the second, which distributions leave alone, is for the root of a user namespace,
// who has not so many.
var identityRanges = []struct{ first, count uint32 }{{0x70000000, 1 << 24}, {30000, 29999}}

// serverIdentity returns the identity of a run's servers. It is 0, the supervisor's own user, where that is not root or cannot change
// users.
func serverIdentity(run string) identity {
	if os.Geteuid() != 0 {
		return 0
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(run))
	for _, r := range identityRanges {
		id := r.first + h.Sum32()%r.count
		if known("/proc/self/uid_map", id) && known("/proc/self/gid_map", id) {
			return identity(id)
		}
	}
	return 0
}

// known tells whether a number stands for a user or group in this user namespace.
func known(file string, id uint32) bool {
	b, err := os.ReadFile(file)
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(b)) {
		fields := strings.Fields(line)
		if len(fields) != 3 {
			continue
		}
		first, err1 := strconv.ParseUint(fields[0], 10, 32)
		count, err2 := strconv.ParseUint(fields[2], 10, 32)
		if err1 == nil && err2 == nil && uint64(id) >= first && uint64(id) < first+count {
			return true
		}
	}
	return false
}

// take has a child become that user.
func (i identity) take(a *syscall.SysProcAttr) {
	if i != 0 {
		a.Credential = &syscall.Credential{Uid: uint32(i), Gid: uint32(i)}
	}
}

// give makes the identity the owner of a file.
func (i identity) give(path string) error {
	if i == 0 {
		return nil
	}
	return os.Chown(path, int(i), int(i))
}

// pipeSize is what a control stream's pipe should hold while it is left to fill, in bytes: sixteen thousand events.
const pipeSize = 1 << 20

// blockingPipe is os.Pipe whose ends the runtime does not poll: a watched pipe wakes a thread of this process at every
// write, whether or not anybody reads. A read takes a thread of its own meanwhile, and ends when the writer is gone.
func blockingPipe() (r, w *os.File, err error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return nil, nil, os.NewSyscallError("pipe2", err)
	}
	// A smaller pipe will do: its writer waits a little more often.
	_, _ = unix.FcntlInt(uintptr(fds[0]), unix.F_SETPIPE_SZ, pipeSize)
	return os.NewFile(uintptr(fds[0]), "|0"), os.NewFile(uintptr(fds[1]), "|1"), nil
}
