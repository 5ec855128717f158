//go:build unix

package wire

import "golang.org/x/sys/unix"

// CPU returns the user and system time that the calling process has used, in ns.
func CPU() int64 {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return u.Utime.Nano() + u.Stime.Nano()
}
