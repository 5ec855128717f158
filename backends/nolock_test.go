package backends_test

import (
	"testing"
	"time"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/lock"
)

// TestNoLock: every request is granted, no holder is entitled, and it is never a default.
func TestNoLock(t *testing.T) {
	b := backends.Backend{Name: "b", Locks: []backends.Lock{{Name: "real"}}}
	if l, ok := b.Lock(""); !ok || l.Name != "real" {
		t.Errorf("the default is %q", l.Name)
	}
	l, ok := b.Lock(backends.NoLock)
	if !ok || l.Wrong == "" || len(b.Locks) != 1 {
		t.Fatalf("%+v", l)
	}
	conn, err := l.Dial(t.Context(), backends.Access{})
	if err != nil {
		t.Fatal(err)
	}
	ids := map[string]bool{}
	for range 3 {
		u, err := conn.Locker(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		g, err := u.Acquire(t.Context(), lock.Request{Lock: "seat"})
		if err != nil || g.Lock != "seat" || g.ValidUntil.Covers(time.Now()) {
			t.Errorf("%+v, %v", g, err)
		}
		ids[g.ID] = true
	}
	if len(ids) != 3 {
		t.Errorf("%d ids for 3 grants", len(ids))
	}
}
