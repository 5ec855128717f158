//go:build !linux

package agent

import "context"

// CanClock tells why the wall clock of processes cannot be moved on this machine.
func CanClock() error { return Supported() }

// RestoreClocks has nothing to set right here.
func RestoreClocks(context.Context) ([]string, error) { return nil, nil }
