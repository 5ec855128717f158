package topology

import (
	"context"
	"sync"
)

// RequestCounter is a Service whose servers count what they are asked.
type RequestCounter interface {
	// Requests returns, by server, how many requests it has taken since it started; a server that does not answer
	// is left out. Each service counts in its own way; pings, and the harness's own questions, count too.
	Requests(ctx context.Context) map[string]int64
}

// CountEach asks all servers at once for a number, and returns it by the names of those that answered.
func CountEach[M any](servers []M, name func(M) string, ask func(M) (int64, error)) map[string]int64 {
	var mu sync.Mutex
	out := map[string]int64{}
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
