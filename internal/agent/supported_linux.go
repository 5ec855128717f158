package agent

import (
	"errors"
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// FilterSupported tells why packets cannot be filtered and held on this machine; nil where they can. It tries, in a network
// namespace that is gone afterwards.
func FilterSupported() error {
	result := make(chan error, 1)
	go func() { result <- inNamespaceOfItsOwn(tryFilter) }()
	return <-result
}

// inNamespaceOfItsOwn must be called on a goroutine of its own: its thread ends with it.
func inNamespaceOfItsOwn(f func(*namespace) error) error {
	runtime.LockOSThread()
	if unix.Gettid() == unix.Getpid() { // the first thread cannot end: another does it, while this one waits
		defer runtime.UnlockOSThread()
		result := make(chan error, 1)
		go func() { result <- inNamespaceOfItsOwn(f) }()
		return <-result
	}
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("make a network namespace: %w", err)
	}
	space, err := namespaceAt("/proc/thread-self/ns/net")
	if err != nil {
		return err
	}
	return errors.Join(f(space), space.close())
}

func tryFilter(space *namespace) error {
	rules := []Rule{{Peer: "192.0.2.1", How: Drop}, {Peer: "192.0.2.2", How: Reject, Out: true}, {Peer: "192.0.2.3", How: Hold}}
	f, err := newLinks().newFilter(space, "try", FilterArgs{Rules: rules})
	if err != nil {
		return err
	}
	_, err = f.remove()
	return err
}
