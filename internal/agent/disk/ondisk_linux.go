package disk

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// OnDisk mounts a device at a directory for this program alone, switches to the user (0: unchanged), and executes argv,
// whose directory that is. The mount vanishes with the last of its processes. OnDisk returns only with an error.
func OnDisk(device, dir string, user int, argv []string) error {
	runtime.LockOSThread() // this thread executes the program
	if len(argv) == 0 {
		return errors.New("there is no program to become")
	}
	if err := ownMounts(); err != nil {
		return err
	}
	if err := unix.Mount(device, dir, "ext4", 0, ""); err != nil {
		return fmt.Errorf("mount %s at %s: %w", device, dir, err)
	}
	if err := os.Chdir(dir); err != nil {
		return err
	}
	program, err := unix.Open(argv[0], unix.O_RDONLY, 0) // for a user without access to its path
	if err != nil {
		return fmt.Errorf("open %s: %w", argv[0], err)
	}
	if user != 0 {
		if err := become(user, dir); err != nil {
			return fmt.Errorf("become user %d: %w", user, err)
		}
	}
	err = unix.Exec(argv[0], argv[1:], os.Environ())
	if errors.Is(err, unix.EACCES) {
		err = unix.Exec("/proc/self/fd/"+strconv.Itoa(program), argv[1:], os.Environ())
	}
	return fmt.Errorf("become %s: %w", argv[0], err)
}

// become gives the directory to a user and switches the process to that user. The switch clears the parent death
// signal, so it is set again.
func become(user int, dir string) error {
	for _, step := range []func() error{
		func() error { return os.Chown(dir, user, user) },
		func() error { return syscall.Setgroups(nil) },
		func() error { return syscall.Setgid(user) },
		func() error { return syscall.Setuid(user) },
		func() error { return unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}
