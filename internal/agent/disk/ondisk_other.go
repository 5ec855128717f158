//go:build !linux

// Package disk is for Linux alone.
package disk

import "github.com/lockquake/lockquake/internal/agent/proc"

// OnDisk is not supported here.
func OnDisk(string, string, int, []string) error { return proc.Supported() }
