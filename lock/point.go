package lock

import (
	"context"
	"sync/atomic"
)

type armedKey struct{}

// Armed is called at a point that is announced with At. It may block: that is how a directed run stops a client in
// the middle of an operation.
type Armed func(ctx context.Context, point string)

// Arm returns a context in which fn is called at every announced point.
func Arm(ctx context.Context, fn Armed) context.Context {
	return context.WithValue(ctx, armedKey{}, fn)
}

// At announces a point in the code of an adapter, a workload or a guard, such as "setnx-done". It does nothing unless
// the context is armed.
func At(ctx context.Context, point string) {
	if fn, ok := ctx.Value(armedKey{}).(Armed); ok {
		fn(ctx, point)
	}
}

type attemptsKey struct{}

// CountAttempts returns a context in which every announced attempt is added to n.
func CountAttempts(ctx context.Context, n *atomic.Uint32) context.Context {
	return context.WithValue(ctx, attemptsKey{}, n)
}

// Attempt announces that an adapter asks the service for a lock, possibly one of many times within one acquire.
// Adapters that wait in a queue of the service, or for a library that retries by itself, announce nothing: their
// number of attempts is unknown. It does nothing unless the context counts.
func Attempt(ctx context.Context) {
	if n, ok := ctx.Value(attemptsKey{}).(*atomic.Uint32); ok {
		n.Add(1)
	}
}
