//go:build !linux

// Package identity is for Linux only: elsewhere servers are the supervisor's own user.
package identity

import (
	"syscall"
)

// User is the user of servers: always the supervisor's own.
type User uint32

// OfServers returns the supervisor's own user.
func OfServers(string) User { return 0 }

// CheckCapabilities returns nil.
func CheckCapabilities() error { return nil }

// Take does nothing.
func (User) Take(*syscall.SysProcAttr) {}

// Give does nothing.
func (User) Give(string) error { return nil }
