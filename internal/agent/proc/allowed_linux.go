package proc

import (
	"golang.org/x/sys/unix"
)

// AddressSpace returns how many bytes of address space this process may have (ulimit -v). A process with less than the
// Go runtime reserves crashes at any time.
func AddressSpace() uint64 { return limit(unix.RLIMIT_AS) }

// OpenFiles returns how many files this process may have open at once (ulimit -n): the runtime raises it to the hard
// limit.
func OpenFiles() uint64 { return limit(unix.RLIMIT_NOFILE) }

func limit(of int) uint64 {
	var l unix.Rlimit
	if err := unix.Getrlimit(of, &l); err != nil {
		return Unlimited
	}
	return l.Cur
}

// ManagesUsers are the capabilities that root needs to start a process as another user, signal it, and give it a file.
var ManagesUsers = map[string]uint{
	"CAP_SETUID": unix.CAP_SETUID, "CAP_SETGID": unix.CAP_SETGID,
	"CAP_KILL": unix.CAP_KILL, "CAP_CHOWN": unix.CAP_CHOWN,
}

// Capable reports whether this process has a capability. It returns true if the kernel does not say.
func Capable(capability uint) bool {
	h := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var has [2]unix.CapUserData
	if err := unix.Capget(&h, &has[0]); err != nil {
		return true
	}
	return has[capability/32].Effective&(1<<(capability%32)) != 0
}
