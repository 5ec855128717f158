//go:build unix

package history

import "syscall"

// Flags for opening a file: do not wait for a pipe, do not follow a link.
const (
	noWait   = syscall.O_NONBLOCK
	noFollow = syscall.O_NOFOLLOW
)

// errLink is the error of a link that is not followed.
const errLink = syscall.ELOOP
