package topology

import (
	"context"
	"time"
)

// Resetter is a Service that can be reset to its state after the start without restarting its processes. Reset is
// called between consecutive runs on the same servers, when no client lives.
type Resetter interface {
	// Reset removes what lock users leave behind and nothing else: keys, sessions, leases, waits. Then it asks every
	// server over the service's own protocol whether all of it is gone. Anything that it does not know is kept and
	// reported as an error. It returns the evidence. The service need not serve before the next Ready.
	Reset(ctx context.Context) (evidence []string, err error)
	// Settings returns, by name, what must be the same as after the start of the service: configured roles, and
	// everything that can be set while the servers run.
	Settings(ctx context.Context) (map[string]string, error)
}

// resetPause is the pause between two checks of whether a reset has taken effect.
const resetPause = 10 * time.Millisecond

// Until calls ask until it returns no error. After the patience has passed it returns the last error.
func Until(ctx context.Context, patience time.Duration, ask func(context.Context) error) error {
	over := time.NewTimer(patience)
	defer over.Stop()
	again := time.NewTicker(resetPause)
	defer again.Stop()
	for {
		err := ask(ctx) // without the patience's deadline, which would replace the error's own words
		if err == nil {
			return nil
		}
		select {
		case <-over.C:
			return err
		case <-ctx.Done():
			return err
		default:
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return err
		}
	}
}
