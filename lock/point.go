package lock

import (
	"context"
	"sync/atomic"
)

type armedKey struct{}

// Armed is called at a point that was announced with At; it may block, which is how a directed run stops a client in
// the middle of an operation.
type Armed func(ctx context.Context, point string)

// Arm returns a context in which fn is called at every announced point.
func Arm(ctx context.Context, fn Armed) context.Context {
	return context.WithValue(ctx, armedKey{}, fn)
}

// At announces a point of what an adapter, a workload or a guard does, such as "setnx-done". It does nothing unless
// the context was armed.
func At(ctx context.Context, point string) {
	if fn, ok := ctx.Value(armedKey{}).(Armed); ok {
		fn(ctx, point)
	}
}

type attemptsKey struct{}

// CountAttempts returns a context in which every attempt that is announced is added to n.
func CountAttempts(ctx context.Context, n *atomic.Uint32) context.Context {
	return context.WithValue(ctx, attemptsKey{}, n)
}

// Attempt announces that an adapter asks the service for a lock, once of possibly many times within one acquire. Who
// waits in a queue of the service, or for a library that asks again by itself, announces nothing: nobody knows how
// often it asked. It does nothing unless the context counts.
func Attempt(ctx context.Context) {
	if n, ok := ctx.Value(attemptsKey{}).(*atomic.Uint32); ok {
		n.Add(1)
	}
}
