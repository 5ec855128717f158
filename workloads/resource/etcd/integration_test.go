//go:build integration

package etcd

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/backends/conformance/servers"
	"github.com/lockquake/lockquake/backends/etcd"
	"github.com/lockquake/lockquake/backends/listed"
	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/wire"
	"github.com/lockquake/lockquake/lock"
	"github.com/lockquake/lockquake/workloads/resource"
	"github.com/lockquake/lockquake/workloads/resource/resourcetest"
)

// TestEtcdCells has a user read and write under a grant whose key is then deleted. The guard refuses later accesses;
// without a guard they are applied. The ledger reports both.
func TestEtcdCells(t *testing.T) {
	const ttl = 2 * time.Second
	b := etcd.Backend()
	r := servers.Start(t, servers.Options{Backend: b, Lock: "mutex", TTL: ttl, Run: "cellsetcd"})
	access, err := json.Marshal(r.Access)
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range []struct {
		guard string
		late  error
		final int64
	}{{resource.GuardNone, nil, 12}, {resource.GuardLockKey, resource.ErrFenced, 11}} {
		t.Run(c.guard, func(t *testing.T) {
			name := "lock-" + c.guard
			user := lockUser(t, b, r.Access)
			g, err := user.Acquire(t.Context(), lock.Request{Lock: name, TTL: ttl})
			if err != nil {
				t.Fatal(err)
			}
			link, err := Kind().Dial(t.Context(), resource.Target{Guard: c.guard, Access: access})
			if err != nil {
				t.Fatal(err)
			}
			defer link.Close()
			a := resource.Access{Lock: name, User: history.MakeUser(i, 0), Grant: 1, Token: g.Token, Owner: g.ID}
			if v, err := link.Read(t.Context(), a); err != nil || v != 0 {
				t.Fatalf("read %d, %v", v, err)
			}
			if err := link.Write(t.Context(), a, 11); err != nil {
				t.Fatal(err)
			}
			if err := user.Release(t.Context(), g); err != nil {
				t.Fatal(err)
			}
			if err := link.Write(t.Context(), a, 12); !errors.Is(err, c.late) {
				t.Errorf("a write behind the release: %v, want %v", err, c.late)
			}
			log := ledgerOf(t, access, name)
			if len(log) != 4 || log[3].Kind != history.Final || log[3].Value != c.final {
				t.Fatalf("the ledger tells %+v", log)
			}
			last := log[2]
			if refused := last.Phase == history.Fail && last.Code == history.CodeFenced; refused != (c.late != nil) || last.Value != 12 {
				t.Errorf("the late write is told as %+v", last)
			}
		})
	}
}

// lockUser is one user of the lock.
func lockUser(t *testing.T, b listed.Backend, a backends.Access) lock.Locker {
	t.Helper()
	l, _ := b.Lock(a.Lock)
	conn, err := l.Dial(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	u, err := conn.Locker(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = u.Close(); _ = conn.Close() })
	return u
}

// ledgerOf starts a ledger and returns the log of one lock. No other lock may have been used meanwhile.
func ledgerOf(t *testing.T, access json.RawMessage, of string) []history.Event {
	t.Helper()
	p := resourcetest.Start(t, func(in io.Reader, out io.Writer) error {
		return resource.Ledger(context.Background(), resource.Options{In: in, Out: out, Version: "test"}, []resource.Kind{Kind()}, name)
	})
	p.Frame(wire.TypeHello)
	p.Send(wire.Frame{Type: wire.TypeStart, Start: &wire.Start{
		Name: "ledger", Index: -1, Format: wire.FormatRecords, Locks: []string{"lock-" + resource.GuardNone, "lock-" + resource.GuardLockKey},
		Resource: &wire.Resource{Use: name}, Access: access,
	}})
	p.Frame(wire.TypeReady)
	number := 0
	if of == "lock-"+resource.GuardLockKey {
		number = 1
	}
	p.Send(wire.Frame{Type: wire.TypeCommand, Command: &wire.Command{ID: 1, Do: wire.DoFinal, Lock: number}})
	if got := p.Frame(wire.TypeResult).Result; got.Outcome != wire.OutcomeOK {
		t.Fatalf("the final read: %+v", got)
	}
	p.Stop()
	var out []history.Event
	for _, e := range p.Events {
		if int(e.Lock) == number {
			out = append(out, e)
		}
	}
	return out
}
