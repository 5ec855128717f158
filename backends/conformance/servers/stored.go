package servers

import (
	"strings"
	"testing"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/backends/topology"
	"github.com/lockquake/lockquake/lock"
)

// Stored checks what the running service as a whole says about a lock. While it is held, that is the grant's id, or
// the session with which the id begins, and the remaining time if a call can renew the lock. Before and after, nobody
// holds it.
func Stored(t *testing.T, r Running, l backends.Lock) {
	t.Helper()
	store, ok := r.Service.(topology.Store)
	if !ok {
		t.Fatalf("%T cannot list its grants", r.Service)
	}
	conn := dialed(t, r, l)
	defer func() { _ = conn.Close() }()
	u, err := conn.Locker(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = u.Close() }()
	name := "stored-" + l.Name
	is := func(when, want string) topology.Stored {
		t.Helper()
		got, err := store.Stored(t.Context(), name)
		if err != nil || got.Holder != want && !strings.HasPrefix(want, got.Holder+"/") || got.Keys != nil &&
			(len(got.Keys) > 0) != (want != "none") {
			t.Errorf("%s: %+v, %v; want %s", when, got, err, want)
		}
		return got
	}
	is("before the grant", "none")
	g, err := u.Acquire(t.Context(), lock.Request{Lock: name, TTL: r.Access.TTL})
	if err != nil {
		t.Fatal(err)
	}
	got := is("with the grant", g.ID)
	if ends := got.EndsIn; l.Offers.Renewal == "call" && (ends == nil || *ends <= 0 || *ends > r.Access.TTL) {
		t.Errorf("it ends in %v, the TTL is %v", ends, r.Access.TTL)
	}
	if err := u.Release(t.Context(), g); err != nil {
		t.Fatal(err)
	}
	is("after the release", "none")
}
