package redis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/lock"
)

// TestParams refuses what the server or the lock cannot do, and names the key.
func TestParams(t *testing.T) {
	for _, c := range []struct {
		set  func(*Params)
		want string
	}{
		{func(*Params) {}, ""},
		{func(p *Params) { p.Persistence = "some" }, "persistence"},
		{func(p *Params) { p.Timeout = 1000 }, "timeout"},
		{func(p *Params) { p.Retry.Delay = 10 }, "retry.delay"},
		{func(p *Params) { p.Retry.Jitter = 2 }, "retry.jitter"},
	} {
		_, err := newSingle(backends.Common{TTL: time.Second}, func(into any) error { c.set(into.(*Params)); return nil })
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("error is %v; it should name %q", err, c.want)
		}
	}
	if _, err := newSingle(backends.Common{Nodes: 3}, func(any) error { return nil }); err == nil {
		t.Error("three nodes are taken for one server")
	}
}

// TestRefusedIsCertain has nobody listen: no request can have reached a service.
func TestRefusedIsCertain(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	u := userAt(t, address)
	g := lock.Grant{Lock: "a", ID: "b"}
	for name, err := range map[string]error{
		"try":     second(u.TryAcquire(t.Context(), lock.Request{Lock: "a", TTL: time.Second})),
		"release": u.Release(t.Context(), g),
		"renew":   second(u.Renew(t.Context(), g, time.Second)),
	} {
		if !errors.Is(err, lock.ErrNotSent) || !lock.Certain(err) {
			t.Errorf("%s with nobody listening: %v", name, err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := u.Acquire(ctx, lock.Request{Lock: "a", TTL: time.Second}); !lock.Certain(err) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("acquire with nobody listening: %v", err)
	}
}

// TestSilenceIsUnknown has a server that takes the request and says nothing, or hangs up.
func TestSilenceIsUnknown(t *testing.T) {
	for name, answer := range map[string]func(net.Conn){
		"silent":   func(net.Conn) {},
		"hangs up": func(c net.Conn) { _ = c.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			u := userAt(t, serve(t, answer))
			if _, err := u.TryAcquire(t.Context(), lock.Request{Lock: "a", TTL: time.Second}); err == nil || lock.Certain(err) {
				t.Errorf("try: %v", err)
			}
			if err := u.Release(t.Context(), lock.Grant{Lock: "a", ID: "b"}); err == nil || lock.Certain(err) {
				t.Errorf("release: %v", err)
			}
		})
	}
}

// TestErrorReplyIsCertain has a server that answers with an error: it did nothing.
func TestErrorReplyIsCertain(t *testing.T) {
	u := userAt(t, serve(t, func(c net.Conn) { _, _ = fmt.Fprint(c, "-LOADING Redis is loading the dataset in memory\r\n") }))
	if _, err := u.TryAcquire(t.Context(), lock.Request{Lock: "a", TTL: time.Second}); !errors.Is(err, lock.ErrRefused) || !lock.Certain(err) {
		t.Errorf("try: %v", err)
	}
}

// TestIssuedIsSendTime holds the reply back: validity counts from the request, not from the reply.
func TestIssuedIsSendTime(t *testing.T) {
	const delay = 300 * time.Millisecond
	u := userAt(t, serve(t, func(c net.Conn) {
		time.Sleep(delay)
		_, _ = fmt.Fprint(c, "+OK\r\n")
	}))
	before := time.Now()
	g, err := u.TryAcquire(t.Context(), lock.Request{Lock: "a", TTL: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if since := time.Since(g.Issued); since < delay {
		t.Errorf("issued %s ago, but the reply took %s", since, delay)
	}
	if end, _ := g.ValidUntil.Time(); end.Before(before.Add(900*time.Millisecond)) || end.After(g.Issued.Add(time.Second-backends.Drift(time.Second))) {
		t.Errorf("valid until %s after the request", end.Sub(g.Issued))
	}
}

func second[T any](_ T, err error) error { return err }

func userAt(t *testing.T, address string) *locker {
	t.Helper()
	a := backends.Access{
		Backend: "redis", Lock: "set-px-lua", TTL: time.Second, Run: "unit",
		Nodes:  []backends.Endpoint{{Name: "redis-1", Addresses: map[string]string{Port: address}}},
		Params: []byte(`{"timeout_ns": 500000000}`),
	}
	c, err := dial(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	l, err := c.Locker(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	return l.(*locker)
}

// serve answers the handshake like a Redis without HELLO, and each SET and EVALSHA with answer.
func serve(t *testing.T, answer func(net.Conn)) string {
	t.Helper()
	return serveCommands(t, func(c net.Conn, _ string) { answer(c) })
}

// serveCommands is serve where the answer depends on the command, in upper case and as it came over the wire.
func serveCommands(t *testing.T, answer func(c net.Conn, command string)) string {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				buf := make([]byte, 4096)
				for {
					n, err := c.Read(buf)
					if err != nil {
						return
					}
					if text := strings.ToUpper(string(buf[:n])); strings.Contains(text, "SET\r\n") || strings.Contains(text, "EVALSHA") {
						answer(c, text)
					} else {
						_, _ = fmt.Fprint(c, "-ERR unknown command\r\n")
					}
				}
			}()
		}
	}()
	return l.Addr().String()
}
