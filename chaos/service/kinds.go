// Package service has the faults that change no node: they ask the service for something, or do nothing.
package service

import "github.com/lockquake/lockquake/chaos"

// Kinds lists them.
func Kinds() []chaos.Kind {
	return []chaos.Kind{noopKind(), failoverKind(), refuseWritesKind(), compactKind(), maxMemoryKind()}
}
