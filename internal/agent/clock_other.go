//go:build !linux

package agent

// CanClock tells why the wall clock of processes cannot be moved on this machine.
func CanClock() error { return Supported() }
