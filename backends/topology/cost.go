package topology

import (
	"context"
	"sync"
	"time"
)

// RequestCounter is a Service whose servers count their requests.
type RequestCounter interface {
	// Requests returns the number of requests that each server has taken since it started. Servers that do not answer
	// are left out. Each service counts in its own way; pings and the harness's own questions count too.
	Requests(ctx context.Context) map[string]int64
}

// ConnectionCounter is a Service whose servers count the connections that they accept.
type ConnectionCounter interface {
	// Connections returns the number of connections that each server has accepted since it started. Servers that do
	// not answer are left out. Connections of the harness, and between servers, count too.
	Connections(ctx context.Context) map[string]int64
}

// SyncTimer is a Service whose servers measure how long they wait for their disks.
type SyncTimer interface {
	// Syncs returns how often each server synced its log to disk since it started, and the total time of that.
	// Servers that do not answer are left out.
	Syncs(ctx context.Context) map[string]Syncs
}

// Syncs counts the disk writes that a server waited for.
type Syncs struct {
	N    int64
	Took time.Duration // total time
}

// CountEach asks all servers at once for a figure and returns the answers by server name. Servers that do not answer
// are left out.
func CountEach[M, N any](servers []M, name func(M) string, ask func(M) (N, error)) map[string]N {
	var mu sync.Mutex
	out := map[string]N{}
	var group sync.WaitGroup
	for _, m := range servers {
		group.Go(func() {
			if n, err := ask(m); err == nil {
				mu.Lock()
				defer mu.Unlock()
				out[name(m)] = n
			}
		})
	}
	group.Wait()
	return out
}
