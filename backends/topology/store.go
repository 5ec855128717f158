package topology

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Store is a Service that says as a whole what it has of a lock: by what its grants depend on, such as the primary, or
// a majority. The engine asks it as history.Service.
type Store interface {
	Stored(ctx context.Context, lock string) (Stored, error)
}

// Stored is what a service has of a lock.
type Stored struct {
	Holder string // id of the grant that has the lock, "none", or those of several who share it, with commas
	// EndsIn is how long the grant lasts if nobody renews it; nil where the service does not say, or names no end.
	EndsIn *time.Duration
	// Keys are the ids of all grants that are there, those among them that too few servers have; nil: Holder is all
	// there is.
	Keys []string
}

// StoredBy asks members that all say the same, one after the other, until one answers.
func StoredBy[M any](ctx context.Context, members []M, ask func(context.Context, M) (string, error)) (Stored, error) {
	err := errors.New("there is no server")
	for _, m := range members {
		var holder string
		if holder, err = ask(ctx, m); err == nil {
			return Stored{Holder: holder}, nil
		}
	}
	return Stored{}, fmt.Errorf("no server says who has the lock: %w", err)
}
