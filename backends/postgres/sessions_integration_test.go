//go:build integration

package postgres

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockquake/lockquake/backends/topology"
	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/wait"
	"github.com/lockquake/lockquake/lock"
)

// TestSessions follows a session in the service's list from its first command to its end, which frees its lock.
func TestSessions(t *testing.T) {
	r := serve(t, advisoryName)
	lister := r.Service.(topology.SessionLister)
	r.Access.Client = 3
	for _, name := range []string{advisoryName, rowName} {
		first, second := users(t, r.Access, name)
		g, err := first.Acquire(t.Context(), lock.Request{Lock: "ended", TTL: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		user := history.MakeUser(3, 0)
		wait.Until(t, time.Minute, "the server waits for the session's next command", func() bool { return stands(t, lister, user) })
		changes := first.(lock.Watcher).Watch(t.Context(), g)
		pid := first.(*sessionHolder).sessions[0].conn.PgConn().PID()
		err = r.Service.(*sessions).member.ask(t.Context(), func(ctx context.Context, c *pgx.Conn) error {
			_, err := c.Exec(ctx, `SELECT pg_terminate_backend($1)`, int32(pid))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if c, ok := <-changes; !ok || !c.Lost {
			t.Errorf("%s: the holder was not told of the loss: %+v", name, c)
		}
		h, err := second.Acquire(t.Context(), lock.Request{Lock: "ended", TTL: time.Second})
		if err != nil {
			t.Errorf("%s: another user after the session's end: %v", name, err)
		}
		if stands(t, lister, user) {
			t.Errorf("%s: a session that was ended stands although its lock was granted again", name)
		}
		if err := first.Release(t.Context(), g); !errors.Is(err, lock.ErrNotSent) {
			t.Errorf("%s: release on a session that is gone: %v", name, err)
		}
		if err := second.Release(t.Context(), h); err != nil {
			t.Errorf("%s: release: %v", name, err)
		}
	}
}

func stands(t *testing.T, lister topology.SessionLister, u history.User) bool {
	t.Helper()
	list, err := lister.Sessions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range list {
		if s.User == u && s.Stands {
			return true
		}
	}
	return false
}

// TestVanishedHolder closes a holder's connection without a message, as the kernel does for a killed process.
func TestVanishedHolder(t *testing.T) {
	r := serve(t, advisoryName)
	for _, name := range []string{advisoryName, rowName} {
		first, second := users(t, r.Access, name)
		if _, err := first.Acquire(t.Context(), lock.Request{Lock: "vanished"}); err != nil {
			t.Fatal(err)
		}
		if err := first.(*sessionHolder).sessions[0].conn.PgConn().Conn().Close(); err != nil {
			t.Fatal(err)
		}
		ctx, done := context.WithTimeout(t.Context(), sessionRecovery)
		if _, err := second.Acquire(ctx, lock.Request{Lock: "vanished"}); err != nil {
			t.Errorf("%s: another user after the holder vanished: %v", name, err)
		}
		done()
	}
}

// TestCancelledWait cancels waits around the moment of the release. After a wait that was cancelled in time the next
// cancel comes later; after one that was granted, sooner. So it finds that moment on any machine. The wait's answer
// must be true: a grant is a grant, and after "certainly not" the lock is free.
func TestCancelledWait(t *testing.T) {
	r := serve(t, advisoryName)
	for _, name := range []string{advisoryName, rowName} {
		first, second := users(t, r.Access, name)
		granted, refused := 0, 0
		after := time.Duration(0)
		for i := range 40 {
			g, err := first.(lock.TryAcquirer).TryAcquire(t.Context(), lock.Request{Lock: "cancelled"})
			if err != nil {
				t.Fatalf("%s: the lock is not free in round %d: %v", name, i, err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			type answer struct {
				grant lock.Grant
				err   error
			}
			done := make(chan answer, 1)
			go func() {
				h, err := second.Acquire(ctx, lock.Request{Lock: "cancelled"})
				done <- answer{h, err}
			}()
			until(t, asker(t, r.Service), "sessions", "2")
			time.AfterFunc(after, cancel)
			time.Sleep(3 * time.Millisecond) // until it waits
			if err := first.Release(t.Context(), g); err != nil {
				t.Fatal(err)
			}
			switch got := <-done; {
			case got.err == nil:
				granted++
				after = after * 9 / 10 // small steps in this direction: a cancelled wait takes the longest
				if err := second.Release(t.Context(), got.grant); err != nil {
					t.Fatalf("%s: release of a grant that a cancel met: %v", name, err)
				}
			case !lock.Certain(got.err):
				t.Errorf("%s: a cancelled wait on a healthy server: %v", name, got.err)
			default:
				refused++
				after += max(after/2, 200*time.Microsecond)
			}
			cancel()
		}
		t.Logf("%s: %d granted, %d refused", name, granted, refused)
		if granted == 0 || refused == 0 {
			t.Errorf("%s: %d granted and %d refused: the race was not met", name, granted, refused)
		}
		for _, u := range []lock.Locker{first, second} {
			if err := u.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}
