package zookeeper

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/lockquake/lockquake/backends"
)

// TestRecoveryIncludesTheLag: followers leave an unresponsive leader after sync_limit ticks, which lengthens the
// bound of every lock.
func TestRecoveryIncludesTheLag(t *testing.T) {
	bound := func(l backends.Lock, change func(*Params)) time.Duration {
		p := defaults()
		change(&p)
		text, err := json.Marshal(p.derived().LockParams)
		if err != nil {
			t.Fatal(err)
		}
		return l.Bound(2*time.Second, text)
	}
	for _, l := range Backend().Locks {
		usual, slow := bound(l, func(*Params) {}), bound(l, func(p *Params) { p.TickTime, p.SyncLimit = time.Second, 5 })
		if usual != 7*time.Second || l.Bound(2*time.Second, nil) != usual || slow != usual+2*(6*time.Second-600*time.Millisecond) {
			t.Errorf("%s: %s by default, %s where a leader is let go of after 6 s", l.Name, usual, slow)
		}
	}
}
