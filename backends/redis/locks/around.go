package locks

import (
	"context"

	"github.com/lockquake/lockquake/lock"
)

// around returns the means of set-px-lua, with call wrapped around each of its requests for a lock.
func around(call func(ctx context.Context, l *recipe, name string, do func(context.Context) error) error) means {
	return means{
		take: func(ctx context.Context, l *recipe, r lock.Request) (g lock.Grant, err error) {
			err = call(ctx, l, r.Lock, func(ctx context.Context) error {
				g, err = takePx(ctx, l, r)
				return err
			})
			return g, err
		},
		give: func(ctx context.Context, l *recipe, g lock.Grant) error {
			return call(ctx, l, g.Lock, func(ctx context.Context) error { return releaseOwn(ctx, l, g) })
		},
	}
}
