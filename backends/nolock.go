package backends

import (
	"context"
	"crypto/rand"
	"time"

	"github.com/lockquake/lockquake/lock"
)

// NoLock is the name of "no lock at all" in scenarios.
const NoLock = "none"

// noLock grants every request at once, without a service. It promises nothing, so no holder is ever entitled. What
// remains is the resource with its own guard, under the same load.
func noLock() Lock {
	return Lock{
		Name: NoLock, Doc: "No lock: every acquire succeeds at once, without a request.", Wrong: "it excludes nobody",
		Absent: true,
		Offers: Offers{Try: true, Renewal: "none", Token: TokenNone, Reentrant: "no"},
		Dial:   func(context.Context, Access) (Connection, error) { return open{}, nil },
	}
}

type open struct{}

// Locker returns a locker that needs no service.
func (open) Locker(context.Context, int) (lock.Locker, error) { return open{}, nil }

// Acquire grants.
func (open) Acquire(_ context.Context, r lock.Request) (lock.Grant, error) {
	return lock.Grant{Lock: r.Lock, Mode: r.Mode, ID: rand.Text(), Issued: time.Now()}, nil
}

// Release has nothing to give back.
func (open) Release(context.Context, lock.Grant) error { return nil }

// Close has nothing to free.
func (open) Close() error { return nil }
