package proc

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// TestCPU makes a child of a child compute, and finds its time with their common ancestor.
func TestCPU(t *testing.T) {
	t.Parallel()
	c := exec.Command("sh", "-c", "sh -c 'while :; do :; done'; :")
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Wait() }()
	defer func() { _ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }()
	for {
		used, err := CPU(c.Process.Pid)
		if err != nil {
			t.Fatal(err)
		}
		if used >= 50*time.Millisecond {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	if all, err := CPU(os.Getpid()); err != nil || all < 50*time.Millisecond {
		t.Errorf("the test and its children: %v, %v", all, err)
	}
	if _, err := CPU(1 << 30); err == nil {
		t.Error("a process that is not there has a time")
	}
}
