package agent

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// FilterSupported tells why packets cannot be filtered and held on this machine; nil where they can. It tries, in a network
// namespace that is gone afterwards.
func FilterSupported() error {
	return inNamespaceOfItsOwn(tryFilter)
}

// inNamespaceOfItsOwn runs f on a thread in a new network namespace, which is gone when both are.
func inNamespaceOfItsOwn(f func(*namespace) error) error {
	var err error
	onOwnThread(func() { err = inNewNamespace(f) })
	return err
}

// inNewNamespace leaves the calling thread in the namespace that it makes.
func inNewNamespace(f func(*namespace) error) error {
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
