package locks

import (
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/backends/redis/access"
	"github.com/lockquake/lockquake/lock"
)

// below is the prefix of a run on external servers.
const below = "bench:r1/"

// TestCommandsAreBelowThePrefix records what each lock sends to a server: except for the handshake, all commands are
// about keys below the prefix.
func TestCommandsAreBelowThePrefix(t *testing.T) {
	each(t, func(t *testing.T, l backends.Lock) {
		var mu sync.Mutex
		var sent []string
		script := grants[l.Name]
		address := serveCommands(t, func(c net.Conn, command string) {
			mu.Lock()
			sent = append(sent, command)
			answer := script[min(len(sent), len(script))-1]
			mu.Unlock()
			_, _ = fmt.Fprint(c, answer+"\r\n")
		})
		a := backends.Access{
			Backend: access.Single, Lock: l.Name, TTL: time.Second, Run: "unit", Prefix: below, Params: fmt.Appendf(nil, `{"timeout_ns": %d}`, patience),
			Nodes: []backends.Endpoint{{Name: "redis-1", Addresses: map[string]string{access.Port: address}}},
		}
		c, err := l.Dial(t.Context(), a)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		u, err := c.Locker(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		g, err := u.(lock.TryAcquirer).TryAcquire(t.Context(), lock.Request{Lock: "stock", TTL: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		_ = u.Release(t.Context(), g) // whatever the server answers
		mu.Lock()
		defer mu.Unlock()
		about := 0
		for _, command := range sent {
			switch {
			case strings.Contains(command, "\r\nCLIENT\r\n"):
			case strings.Contains(command, strings.ToUpper(below)+"{STOCK}"):
				about++
			default:
				t.Errorf("sent %q", command)
			}
		}
		if about < 2 {
			t.Errorf("%d commands are about the lock: %q", about, sent)
		}
	})
}
