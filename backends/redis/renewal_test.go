package redis

import (
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/lock"
)

// judgeRenewal holds a renewal of a second, whose answer took at least delay, to its send time, which is not before the call.
func judgeRenewal(t *testing.T, before time.Time, old, g lock.Grant, drift time.Duration) {
	t.Helper()
	first, _ := old.ValidUntil.Time()
	end, ok := g.ValidUntil.Time()
	if sent := end.Add(drift - time.Second); !ok || sent.Before(before) || time.Since(sent) < delay || !end.After(first) {
		t.Errorf("renewed at %s after the call, %s ago", sent.Sub(before), time.Since(sent))
	}
}

// TestRenewalCountsFromTheSendTime holds back the reply to the renewal.
func TestRenewalCountsFromTheSendTime(t *testing.T) {
	each(t, func(t *testing.T, l backends.Lock) {
		u := userAt(t, l, serve(t, append(slices.Clone(grants[l.Name]), late+":1")...), "")
		r, ok := u.(lock.Renewer)
		if !ok {
			t.Skip("its grants cannot be renewed")
		}
		g, err := try(t, u)
		if err != nil {
			t.Fatal(err)
		}
		before := time.Now()
		next, err := r.Renew(t.Context(), g, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		judgeRenewal(t, before, g, next, backends.Drift(time.Second))
	})
}

// TestQuorumRenewalCountsFromTheFirstRequest holds back the replies of all servers.
func TestQuorumRenewalCountsFromTheFirstRequest(t *testing.T) {
	for _, l := range []backends.Lock{redlock(), redlockNoElapsedCheck(), redsyncFive()} {
		t.Run(l.Name, func(t *testing.T) {
			t.Parallel()
			servers := make([]*fake, 3)
			for i := range servers {
				servers[i] = &fake{address: serveCommands(t, func(c net.Conn, text string) {
					if !strings.Contains(text, "EVALSHA") {
						_, _ = io.WriteString(c, replyOK)
						return
					}
					time.Sleep(delay)
					_, _ = io.WriteString(c, replyOne)
				})}
			}
			p := patient()
			u := quorumUser(t, l, p, servers)
			g, err := u.(lock.TryAcquirer).TryAcquire(t.Context(), request1s())
			if err != nil {
				t.Fatal(err)
			}
			before := time.Now()
			next, err := u.(lock.Renewer).Renew(t.Context(), g, time.Second)
			if err != nil {
				t.Fatal(err)
			}
			judgeRenewal(t, before, g, next, p.drift(time.Second))
		})
	}
}

// TestRueidisPromise counts from what the command asked for, however late its answer comes, and once only.
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
