package locks

import (
	"io"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/lock"
)

// renewalTime is how long a renewal takes.
const renewalTime = 20 * time.Millisecond

// renewed renews a grant for another minute, and checks that the new validity counts from the send time.
func renewed(t *testing.T, u lock.Locker, drift time.Duration) {
	t.Helper()
	g, err := u.(lock.TryAcquirer).TryAcquire(t.Context(), lock.Request{Lock: "a", TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	first, _ := g.ValidUntil.Time()
	before := time.Now()
	g, err = u.(lock.Renewer).Renew(t.Context(), g, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	end, ok := g.ValidUntil.Time()
	if sent := end.Add(drift - time.Minute); !ok || sent.Before(before) || time.Since(sent) < renewalTime || !end.After(first) {
		t.Errorf("renewed at %s after the call, %s ago", sent.Sub(before), time.Since(sent))
	}
}

// slowly grants at once and delays scripts, which renew.
func slowly(t *testing.T, grants []string) string {
	t.Helper()
	var asked atomic.Int32
	return serveCommands(t, func(c net.Conn, _ string) {
		if n := int(asked.Add(1)); n <= len(grants) {
			_, _ = io.WriteString(c, grants[n-1]+"\r\n")
			return
		}
		time.Sleep(renewalTime)
		_, _ = io.WriteString(c, replyOne)
	})
}

// TestRenewalCountsFromTheSendTime delays the reply to the renewal.
func TestRenewalCountsFromTheSendTime(t *testing.T) {
	each(t, func(t *testing.T, l backends.Lock) {
		u := userAt(t, l, slowly(t, grants[l.Name]), "")
		if _, ok := u.(lock.Renewer); !ok {
			t.Skip("its grants cannot be renewed")
		}
		renewed(t, u, backends.Drift(time.Minute))
	})
}

// TestQuorumRenewalCountsFromTheFirstRequest delays the replies of all servers.
func TestQuorumRenewalCountsFromTheFirstRequest(t *testing.T) {
	for _, l := range []backends.Lock{redlock(), redlockNoElapsedCheck(), redsyncFive()} {
		t.Run(l.Name, func(t *testing.T) {
			t.Parallel()
			servers := make([]*fake, 3)
			for i := range servers {
				servers[i] = &fake{address: slowly(t, []string{"+OK"})}
			}
			p := patient()
			renewed(t, quorumUser(t, l, p, servers), p.Drift(time.Minute))
		})
	}
}

// TestRueidisPromise: a promise is what the command asked for, however late its answer comes, and it counts only
// once.
func TestRueidisPromise(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newRueidisGrant(time.Second)
		for i := range 2 {
			sent := time.Now()
			p := rueidisPromise{sent: sent, until: sent.Add(time.Second), clock: int64(i + 1)}
			_, changed := a.validity()
			time.Sleep(delay)
			a.promised(p)
			want := lock.Until(sent.Add(time.Second - backends.Drift(time.Second)))
			if v, _ := a.validity(); v != want {
				t.Errorf("promise %d: %+v, want %+v", i, v, want)
			}
			select {
			case <-changed:
			default:
				t.Errorf("nobody is told of promise %d", i)
			}
			_, changed = a.validity()
			again := p
			again.until = p.until.Add(delay) // a renewal that the library repeats names the same end
			a.promised(again)
			select {
			case <-changed:
				t.Errorf("promise %d is told twice", i)
			default:
			}
			if v, _ := a.validity(); v != want {
				t.Errorf("promise %d repeated: %+v, want %+v", i, v, want)
			}
		}
	})
}
