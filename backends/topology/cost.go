package topology

import (
	"context"
	"sync"
	"time"
)

// RequestCounter is a Service whose servers count what they are asked.
type RequestCounter interface {
	// Requests returns, by server, how many requests it has taken since it started; a server that does not answer
	// is left out. Each service counts in its own way; pings, and the harness's own questions, count too.
	Requests(ctx context.Context) map[string]int64
}

// ConnectionCounter is a Service whose servers count the connections that they take.
type ConnectionCounter interface {
	// Connections returns, by server, how many connections it has taken since it started; a server that does not answer
	// is left out. Those of the harness, and of servers to each other, count too.
	Connections(ctx context.Context) map[string]int64
}

// SyncTimer is a Service whose servers tell how long they wait for their disks.
type SyncTimer interface {
	// Syncs returns, by server, how often it had its log written to disk since it started, and how long that took in
	// all; a server that does not answer is left out.
	Syncs(ctx context.Context) map[string]Syncs
}

// Syncs is writes to disk that a server waited for.
type Syncs struct {
	N    int64
	Took time.Duration // all of them together
}

// CountEach asks all servers at once for a figure, and returns it by the names of those that answered.
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
