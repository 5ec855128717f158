package zookeeper

import (
	"context"
	"errors"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/internal/wait"
	"github.com/lockquake/lockquake/lock"
)

var request1 = lock.Request{Lock: "a", TTL: time.Second}

func mustAcquire(t *testing.T, u lock.Locker) lock.Grant {
	t.Helper()
	g, err := u.Acquire(t.Context(), request1)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// TestGrantedTimeoutCounts: the server grants another length than was requested.
func TestGrantedTimeoutCounts(t *testing.T) {
	f := newFake(t)
	f.set(func(f *fake) { f.length = 3 * time.Second })
	before := time.Now()
	g := mustAcquire(t, userOf(t, f, "sequential"))
	end, _ := g.ValidUntil.Time()
	const off = 100 * time.Millisecond
	length := 3 * time.Second
	if first, last := before.Add(length-off-backends.Drift(length)), time.Now().Add(length-off-backends.Drift(length)); end.Before(first) || end.After(last) {
		t.Errorf("valid until %s after the earliest, %s after the latest end", end.Sub(first), end.Sub(last))
	}
	if g.Token != 0x100000001 || g.Issued.Before(before) {
		t.Errorf("token %#x, issued %s after the call", uint64(g.Token), g.Issued.Sub(before))
	}
}

// TestExpiredSessionIsNotFollowed: the service has forgotten the session. The library then asks for a new one on the
// same object; no such request may reach the service.
func TestExpiredSessionIsNotFollowed(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	u := userOf(t, f, "sequential")
	g := mustAcquire(t, u)
	changes := u.(lock.Watcher).Watch(t.Context(), g)
	f.set(func(f *fake) { f.expired = true })
	f.hangUp()
	lost := false
	for c := range changes {
		lost = lost || c.Lost
	}
	if !lost {
		t.Error("the loss is not told")
	}
	if err := u.Release(t.Context(), g); !errors.Is(err, lock.ErrNotHeld) {
		t.Errorf("release: %v", err)
	}
	if connects, _ := f.seen(); !slices.Equal(connects, []int64{0, 1}) {
		t.Errorf("sessions asked for: %v; the second is the first one's own", connects)
	}
	f.set(func(f *fake) { f.expired = false })
	if again := mustAcquire(t, u); again.ID == "" {
		t.Error("no grant in the next session")
	}
}

// TestSilence: the service stops answering. The session is given up once its length has passed since the last
// answered request, and closed when the service is reachable again.
func TestSilence(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.set(func(f *fake) { f.length = time.Second }) // the test waits for it
	u := userOf(t, f, "single")
	g := mustAcquire(t, u)
	last, _ := g.ValidUntil.Time()
	f.set(func(f *fake) { f.answer = func(int32) (int32, verdict) { return 0, silence } })
	lost := time.Time{}
	for c := range u.(lock.Watcher).Watch(t.Context(), g) {
		if c.Lost {
			lost = c.At
		} else {
			last, _ = c.ValidUntil.Time()
		}
	}
	if lost.Before(last) {
		t.Errorf("lost %s before the validity ended", last.Sub(lost))
	}
	f.set(func(f *fake) { f.answer = nil })
	wait.Until(t, 30*time.Second, "the session is closed", func() bool {
		_, asked := f.seen()
		return slices.Contains(asked, opClose)
	})
	if err := u.Release(t.Context(), g); !errors.Is(err, lock.ErrNotHeld) {
		t.Errorf("release: %v", err)
	}
}

// TestServerThatAcceptsAndSaysNothing: the library is not held up by a server that is paused.
func TestServerThatAcceptsAndSaysNothing(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp4", "127.0.0.1:0") // the kernel accepts
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s := &session{set: (&connection{}).setting()}
	c, err := s.dial("tcp", l.Addr().String(), time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(make([]byte, 4)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the read ended with %v", err)
	}
}

// TestLostReply: the connection breaks between a request and its answer. The outcome is unknown, and the session is
// closed over another connection.
func TestLostReply(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		lock string
		op   int32
		call func(lock.Locker) error
	}{
		{"sequential", opCreate, func(u lock.Locker) error { _, err := u.Acquire(t.Context(), request1); return err }},
		{"herd", opCreate, func(u lock.Locker) error { _, err := u.Acquire(t.Context(), request1); return err }},
		{"single", opCreate, func(u lock.Locker) error { _, err := u.Acquire(t.Context(), request1); return err }},
		{"zk-lock", opCreate, func(u lock.Locker) error { _, err := u.Acquire(t.Context(), request1); return err }},
		{"sequential", opDelete, func(u lock.Locker) error { return u.Release(t.Context(), mustAcquire(t, u)) }},
		{"zk-lock", opDelete, func(u lock.Locker) error { return u.Release(t.Context(), mustAcquire(t, u)) }},
	} {
		f := newFake(t)
		u := userOf(t, f, c.lock)
		broken := false
		f.set(func(f *fake) {
			f.answer = func(op int32) (int32, verdict) {
				if op == c.op && !broken {
					broken = true
					return 0, hangUp
				}
				return 0, reply
			}
		})
		if err := c.call(u); err == nil || lock.Certain(err) {
			t.Errorf("%s, operation %d: %v", c.lock, c.op, err)
		}
		wait.Until(t, 30*time.Second, "the session is closed", func() bool {
			_, asked := f.seen()
			return slices.Contains(asked, opClose)
		})
	}
}

const opDelete = 2

// TestNotSentIsCertain: no server listens any more. The request stays in the library's queue and must not be sent
// later.
func TestNotSentIsCertain(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"sequential", "herd", "single", "zk-lock"} {
		f := newFake(t)
		u := userOf(t, f, name)
		s, err := u.(interface {
			live(context.Context) (*session, error)
		}).live(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		// The adapter reads the connection, so it knows of the session before the library does.
		wait.Until(t, time.Minute, "the library has its session", func() bool { return s.conn.State() == zk.StateHasSession })
		if err := f.listener.Close(); err != nil {
			t.Fatal(err)
		}
		f.hangUp()
		wait.Until(t, time.Minute, "the library sees the end of its connection", func() bool { return s.conn.State() != zk.StateHasSession })
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		if _, err := u.Acquire(ctx, request1); !lock.Certain(err) {
			t.Errorf("%s: %v", name, err)
		}
		if _, asked := f.seen(); slices.Contains(asked, opCreate) {
			t.Errorf("%s: create was sent", name)
		}
	}
}

// TestRefusedIsCertain: the server answers that it will not create the node.
func TestRefusedIsCertain(t *testing.T) {
	const noAuth = -102
	for _, name := range []string{"sequential", "single"} {
		f := newFake(t)
		u := userOf(t, f, name)
		f.set(func(f *fake) { f.answer = func(int32) (int32, verdict) { return noAuth, reply } })
		if _, err := u.Acquire(t.Context(), request1); !errors.Is(err, lock.ErrRefused) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestSilenceIsNoRefusal: if a waiter's session ends because the service is silent, the waiter was not refused; it
// lost its place.
func TestSilenceIsNoRefusal(t *testing.T) {
	t.Parallel()
	const nodeExists = -110
	f := newFake(t)
	f.set(func(f *fake) {
		f.length = time.Second // the test waits for it
		f.answer = func(op int32) (int32, verdict) {
			if op == opCreate {
				return nodeExists, reply
			}
			return 0, silence
		}
	})
	if _, err := userOf(t, f, "single").Acquire(t.Context(), request1); !errors.Is(err, lock.ErrLost) || errors.Is(err, lock.ErrContended) {
		t.Error(err)
	}
}

// TestExpiredAnswer: the server says in an answer that the session is over.
func TestExpiredAnswer(t *testing.T) {
	f := newFake(t)
	u := userOf(t, f, "sequential")
	g := mustAcquire(t, u)
	f.set(func(f *fake) { f.answer = func(int32) (int32, verdict) { return codeExpired, reply } })
	if err := u.Release(t.Context(), g); !errors.Is(err, lock.ErrNotHeld) {
		t.Errorf("release: %v", err)
	}
}
