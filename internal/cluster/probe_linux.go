package cluster

import (
	"errors"
	"fmt"
	"os/exec"
	"runtime"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// inNewNamespace runs f on a thread of its own in a new network namespace, which is gone afterwards.
func inNewNamespace(f func() error) error {
	t := newThread()
	defer t.close()
	return t.do(func() error {
		ns, err := netns.New()
		if err != nil {
			return fmt.Errorf("make a network namespace: %w", err)
		}
		defer func() { _ = ns.Close() }()
		return f()
	})
}

func probeNamespaces() error {
	return inNewNamespace(func() error { return nil })
}

func probeNetem() error {
	return inNewNamespace(func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		err = netlink.QdiscAdd(netlink.NewNetem(
			netlink.QdiscAttrs{LinkIndex: lo.Attrs().Index, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT},
			netlink.NetemQdiscAttrs{Latency: 1000},
		))
		if errors.Is(err, unix.ENOENT) {
			return errors.New("this kernel has no sch_netem (load the module, or use a kernel that has it)")
		}
		return err
	})
}

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
