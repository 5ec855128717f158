package engine

import (
	"context"
	"sync"
	"time"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/internal/wire"
	"github.com/lockquake/lockquake/results"
)

// readingTimeout bounds a reading. Who does not answer within it is left out, and what would rest on it is not judged.
const readingTimeout = 2 * time.Second

// takeReading asks the servers what they have been asked so far, and the clients how often they were woken. It is done before
// the workload is let go and before it is stopped, while everybody still works: at a stop every waiter leaves its queue, which
// costs as much as many handoffs do. Where steps decide, lockquake's own questions would make up most of it.
func (r *run) takeReading(ctx context.Context) {
	if r.plan.workload == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, readingTimeout)
	defer cancel()
	began := clock.Now()
	var requests map[string]int64
	woken := map[string]int64{}
	var mu sync.Mutex
	var group sync.WaitGroup
	if c, ok := r.service.(backends.RequestCounter); ok {
		group.Go(func() { requests = c.Requests(ctx) })
	}
	for _, s := range r.sessions {
		if s.index < 0 {
			continue
		}
		group.Go(func() {
			res, err := s.ask(ctx, wire.Command{Do: wire.DoNotifications})
			if err == nil && res.Outcome == wire.OutcomeOK {
				mu.Lock()
				defer mu.Unlock()
				woken[s.node.Name()] = res.Count
			}
		})
	}
	group.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.env.Readings = append(r.env.Readings, results.Reading{Time: (began + clock.Now()) / 2, Requests: requests, Notifications: woken})
}
