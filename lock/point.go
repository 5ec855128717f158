package lock

import "context"

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
