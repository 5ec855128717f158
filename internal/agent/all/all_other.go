//go:build !linux

// Package all lists the mechanisms of an agent: none, except on Linux.
package all

import "github.com/lockquake/lockquake/internal/agent"

// All returns none: processes cannot be reached from outside here.
func All() agent.Mechanisms { return nil }
