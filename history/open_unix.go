//go:build unix

package history

import "syscall"

// What a file is opened with beside: a pipe is not waited for, and a link not followed.
const (
	noWait   = syscall.O_NONBLOCK
	noFollow = syscall.O_NOFOLLOW
)

// errLink is the error of a link that is not followed.
const errLink = syscall.ELOOP
