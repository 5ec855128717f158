package servers

import (
	"fmt"
	"strings"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/backends/redis/access"
	"github.com/lockquake/lockquake/backends/topology"
)

// locks are the locks of a topology.
type locks []backends.Lock

// named returns the lock of that name, or none.
func (list locks) named(name string) (found backends.Lock) {
	for _, l := range list {
		if l.Name == name {
			found = l
		}
	}
	return found
}

// checkWait rejects `wait` for a lock that does not wait for replicas, because the user would rely on it.
func (list locks) checkWait(p access.LockParams, c topology.Common) error {
	if p.Wait == 0 || c.Lock == "" || list.named(c.Lock).Waits {
		return nil
	}
	var waiting []string
	for _, l := range list {
		if l.Waits {
			waiting = append(waiting, l.Name)
		}
	}
	return fmt.Errorf("wait is %d; the lock %s does not wait for replicas, only %s do", p.Wait, c.Lock,
		strings.Join(waiting, ", "))
}

// describe returns the lock's part of a service's description.
func (list locks) describe(p access.LockParams, c topology.Common) map[string]string {
	out := map[string]string{
		"lock.retry": p.Retry.String(), "lock.timeout": p.Timeout.String(),
		"lock.ttl": c.TTL.String(),
	}
	if list.named(c.Lock).Offers.Blocking {
		out["lock.retry"] = "none: the server notifies waiters of a changed key"
	}
	if p.Wait > 0 {
		out["lock.wait"] = fmt.Sprintf("%d replicas, %s", p.Wait, p.WaitTimeout)
	}
	return out
}
