//go:build !linux

package agent

import "context"

// FreezerSupported tells why processes of this machine cannot be frozen.
func FreezerSupported() error { return Supported() }

// Frozen cannot be asked here.
func (p Process) Frozen() (Frozen, error) { return Frozen{}, Supported() }

// RestoreFrozen has nothing to thaw here.
func RestoreFrozen(context.Context) ([]string, error) { return nil, nil }
