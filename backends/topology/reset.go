package topology

import (
	"context"
	"time"
)

// Resetter is a Service that can be brought back to how it was when it began to serve, with its processes as they
// are. That is asked between runs that follow each other on the same servers, when no client lives.
type Resetter interface {
	// Reset removes what lock users leave behind and nothing else: keys, sessions, leases, waits. Then it has every
	// server asked, over the service's own protocol, that nothing is there any more; what it does not know is not
	// removed, and an error. It returns the evidence. The service need not serve before the next Ready.
	Reset(ctx context.Context) (evidence []string, err error)
	// Settings returns by name what must be now as it was when the service began to serve: who has which role, where
	// that is given and not found out, and what can be set while the servers run.
	Settings(ctx context.Context) (map[string]string, error)
}

// resetPause is the pause between two looks at whether a reset has taken effect.
const resetPause = 10 * time.Millisecond

// Until asks again and again until there is no error, and returns the last one when that took longer than the patience.
func Until(ctx context.Context, patience time.Duration, ask func(context.Context) error) error {
	over := time.NewTimer(patience)
	defer over.Stop()
	again := time.NewTicker(resetPause)
	defer again.Stop()
	for {
		err := ask(ctx) // not cut short by the patience: what is wrong would be said in other words
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
