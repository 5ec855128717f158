package cluster

import (
	"fmt"
	"os/exec"
	"runtime"

	"golang.org/x/sys/unix"
)

// probePtrace attaches to a child, which is what writing into a target needs.
func probePtrace() (string, error) {
	cmd := exec.Command("sleep", "10")
	if err := cmd.Start(); err != nil {
		return "", err
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	runtime.LockOSThread() // ptrace belongs to the thread that attached
	defer runtime.UnlockOSThread()
	if err := unix.PtraceSeize(cmd.Process.Pid); err != nil {
		return "", fmt.Errorf("attach to a child: %w", err)
	}
	return "attached to a child", nil
}
