// Package service has the faults that change no node: they send a request to the service, or do nothing.
package service

import (
	"context"

	"github.com/lockquake/lockquake/chaos"
)

// Kinds lists them.
func Kinds() []chaos.Kind {
	return []chaos.Kind{noopKind(), failoverKind(), refuseWritesKind(), compactKind(), maxMemoryKind()}
}

// able returns the service, or the part of it, that implements T; without is the error if none does.
func able[T any](service chaos.Observer, without chaos.Unavailable) (T, error) {
	ability, ok := chaos.As[T](service)
	if !ok {
		return ability, without
	}
	return ability, nil
}

// writes returns a server's answer to chaos.FactWrites.
func writes(ctx context.Context, service chaos.Observer, node string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, chaos.AskTimeout)
	defer cancel()
	return service.Ask(ctx, node, chaos.FactWrites)
}
