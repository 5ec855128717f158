//go:build !linux

package agent

// FilterSupported tells why packets cannot be filtered and held on this machine.
func FilterSupported() error { return Supported() }
