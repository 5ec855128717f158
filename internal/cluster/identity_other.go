//go:build !linux

package cluster

import (
	"syscall"
)

// identity is for Linux only: elsewhere servers are the supervisor's own user.
type identity uint32

func serverIdentity(string) identity { return 0 }

func managesUsers() error { return nil }

func (identity) take(*syscall.SysProcAttr) {}

func (identity) give(string) error { return nil }
