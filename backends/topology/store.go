package topology

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Store is a Service that can say, as a whole, who has a lock: according to what its grants depend on, such as the
// primary or a majority. The engine asks it as history.Service.
type Store interface {
	Stored(ctx context.Context, lock string) (Stored, error)
}

// Stored is what a service stores about a lock.
type Stored struct {
	Holder string // id of the grant that has the lock, or "none"; ids of several that share it, with commas
	// EndsIn is how long the grant lasts without a renewal; nil if the service does not say, or names no end.
	EndsIn *time.Duration
	// Keys are the ids of all grants that are stored, including those on too few servers to count; nil: Holder is all
	// there is.
	Keys []string
}

// StoredBy asks equivalent members one after the other until one answers.
func StoredBy[M any](ctx context.Context, members []M, ask func(context.Context, M) (string, error)) (Stored, error) {
	err := errors.New("there is no server")
	for _, m := range members {
		var holder string
		if holder, err = ask(ctx, m); err == nil {
			return Stored{Holder: holder}, nil
		}
	}
	return Stored{}, fmt.Errorf("no server names the owner of the lock: %w", err)
}
