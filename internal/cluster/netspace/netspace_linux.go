package netspace

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// inNewNamespace runs f on its own thread in a temporary network namespace.
func inNewNamespace(f func() error) error {
	t := NewThread()
	defer t.Close()
	return t.Do(func() error {
		ns, err := netns.New()
		if err != nil {
			return fmt.Errorf("make a network namespace: %w", err)
		}
		defer func() { _ = ns.Close() }()
		return f()
	})
}

// Probe tries to make a network namespace.
func Probe() error {
	return inNewNamespace(func() error { return nil })
}

// ProbeNetem tries the kernel's netem in a new network namespace.
func ProbeNetem() error {
	return inNewNamespace(func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		err = netlink.QdiscAdd(netlink.NewNetem(
			netlink.QdiscAttrs{
				LinkIndex: lo.Attrs().Index, Handle: netlink.MakeHandle(1, 0),
				Parent: netlink.HANDLE_ROOT,
			},
			netlink.NetemQdiscAttrs{Latency: 1000},
		))
		if errors.Is(err, unix.ENOENT) {
			return errors.New("this kernel has no sch_netem (load the module, or use a kernel that has it)")
		}
		return err
	})
}
