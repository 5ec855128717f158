package locks

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/backends/conformance"
	"github.com/lockquake/lockquake/backends/redis/access"
	"github.com/lockquake/lockquake/lock"
)

// grants is a server's answer to each lock's requests when it grants. The locks over rueidis use another protocol;
// only the conformance suite tests them.
var grants = map[string][]string{
	"setnx":        {":1"},
	"setnx-expire": {":1", ":1"},
	"set-px-del":   {"+OK"},
	"get-then-del": {"+OK"},
	"weak-owner":   {"+OK"},
	"set-px-lua":   {"+OK"},
	"set-px-incr":  {":1"},
	"redislock":    {"+OK"},
	"redsync":      {"+OK"},
}

// each runs a test for every lock that has an entry in grants.
func each(t *testing.T, test func(t *testing.T, l backends.Lock)) {
	t.Helper()
	for _, l := range OneClient() {
		if grants[l.Name] == nil && !strings.HasPrefix(l.Name, "rueidis") {
			t.Errorf("%s is not tested", l.Name)
		}
		if grants[l.Name] != nil {
			t.Run(l.Name, func(t *testing.T) {
				t.Parallel() // some wait for timeouts
				test(t, l)
			})
		}
	}
}

// TestRefusedIsCertain: no server listens, so no request can have reached a service.
func TestRefusedIsCertain(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	each(t, func(t *testing.T, l backends.Lock) {
		u := userAt(t, l, address, "")
		if _, err := try(t, u); !errors.Is(err, lock.ErrNotSent) || !lock.Certain(err) {
			t.Errorf("try with nobody listening: %v", err)
		}
		if err := u.Release(t.Context(), lock.Grant{Lock: "a", ID: "b"}); !lock.Certain(err) {
			t.Errorf("release with nobody listening: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if _, err := u.Acquire(ctx, lock.Request{Lock: "a", TTL: time.Second}); !lock.Certain(err) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("acquire with nobody listening: %v", err)
		}
	})
}

// TestSilenceIsUnknown: one server hangs up instead of answering, and one is silent.
func TestSilenceIsUnknown(t *testing.T) {
	t.Parallel()
	for name, last := range map[string]string{"hangs up": hangUp, "silent": silence} {
		timeout := patience
		if last == silence {
			timeout = hurry
		}
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, l backends.Lock) {
				if _, err := try(t, userWithin(t, l, serve(t, last), timeout, "")); err == nil || lock.Certain(err) {
					t.Errorf("try: %v", err)
				}
				if last == silence {
					return // each call waits for its timeout
				}
				u := userAt(t, l, serve(t, append(slices.Clone(grants[l.Name]), last)...), "")
				g, err := try(t, u)
				if err != nil {
					t.Fatal(err)
				}
				if err := u.Release(t.Context(), g); err == nil || lock.Certain(err) {
					t.Errorf("release: %v", err)
				}
				if r, ok := u.(lock.Renewer); ok {
					if _, err := r.Renew(t.Context(), g, time.Second); err == nil || lock.Certain(err) {
						t.Errorf("renew: %v", err)
					}
				}
			})
		})
	}
}

// TestErrorReplyIsCertain: a server that answers with an error did nothing.
func TestErrorReplyIsCertain(t *testing.T) {
	for _, answer := range []string{
		"-LOADING Redis is loading the dataset in memory", "-READONLY You can't write against a read only replica.",
		"-CLUSTERDOWN The cluster is down", "-NOREPLICAS Not enough good replicas to write.", "-MOVED 1 127.0.0.1:1",
	} {
		word, _, _ := strings.Cut(answer, " ")
		t.Run(word, func(t *testing.T) {
			each(t, func(t *testing.T, l backends.Lock) {
				_, err := try(t, userAt(t, l, serve(t, answer), ""))
				if !errors.Is(err, lock.ErrRefused) || !lock.Certain(err) {
					t.Errorf("try: %v", err)
				}
				if why, told := lock.ReasonOf(err); l.Name == "set-px-lua" && (told != (word == "-NOREPLICAS") || told && why.Cause != lock.CauseFewReplicas) {
					t.Errorf("because %+v", why)
				}
			})
		})
	}
}

// TestIssuedIsSendTime delays the reply: validity counts from the request, not from the reply.
func TestIssuedIsSendTime(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l backends.Lock) {
		if !l.Offers.Expires {
			t.Skip("its grants have no end")
		}
		script := slices.Clone(grants[l.Name])
		script[len(script)-1] = late + script[len(script)-1]
		u := userAt(t, l, serve(t, script...), "")
		before := time.Now()
		g, err := try(t, u)
		if err != nil {
			t.Fatal(err)
		}
		if since := time.Since(g.Issued); since < delay || g.Issued.Before(before) {
			t.Errorf("issued %s ago, but the reply took %s", since, delay)
		}
		end, ok := g.ValidUntil.Time()
		if !ok || end.Before(before.Add(time.Second-backends.Drift(time.Second))) || time.Until(end) > time.Second-delay-backends.Drift(time.Second) {
			t.Errorf("valid until %s after the request", end.Sub(g.Issued))
		}
	})
}

// TestHalfDoneIsUnknown: the second command of setnx-expire is refused; the first one was carried out.
func TestHalfDoneIsUnknown(t *testing.T) {
	if _, err := try(t, userAt(t, setNxExpire(), serve(t, ":1", "-LOADING"), "")); err == nil || lock.Certain(err) {
		t.Errorf("a key that stands was called %v", err)
	}
	if _, err := try(t, userAt(t, setNxExpire(), serve(t, ":1", ":0"), "")); !lock.Certain(err) {
		t.Errorf("a key that is gone was called %v", err)
	}
}

// TestWait: a grant that too few replicas have is given back; this is certain only if the delete was answered.
func TestWait(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		script []string // after the grant: WAIT, the delete
		want   error
	}{
		{"enough", []string{":1"}, nil},
		{"too few", []string{":0", ":1"}, lock.ErrRefused},
		{"too few, and gone", []string{":0", ":0"}, lock.ErrRefused},
		{"too few, deletion refused", []string{":0", "-LOADING"}, errUncertain},
		{"too few, deletion unanswered", []string{":0", hangUp}, errUncertain},
		{"WAIT refused", []string{"-ERR no", ":1"}, lock.ErrRefused},
		{"WAIT unanswered", []string{hangUp, ":1"}, lock.ErrRefused},
	} {
		for _, l := range []backends.Lock{setPxLua(), setPxIncr(), setPxDel(), getThenDel()} {
			t.Run(c.name+"/"+l.Name, func(t *testing.T) {
				t.Parallel()
				address := serve(t, append(slices.Clone(grants[l.Name]), c.script...)...)
				_, err := try(t, userAt(t, l, address, `,"wait":1,"wait_timeout_ns":100000000`))
				want := lock.Reason{Cause: lock.CauseNotReplicated, Seen: 1 << 32, N: 100_000_000}
				if why, told := lock.ReasonOf(err); told != strings.HasPrefix(c.name, "too few") || told && why != want {
					t.Errorf("because %+v", why)
				}
				switch {
				case c.want == nil && err != nil, errors.Is(c.want, errUncertain) && (err == nil || lock.Certain(err)):
					t.Errorf("error is %v", err)
				case c.want != nil && !errors.Is(c.want, errUncertain) && !errors.Is(err, c.want):
					t.Errorf("error is %v, should be %v", err, c.want)
				}
			})
		}
	}
}

var errUncertain = errors.New("nobody knows")

func try(t *testing.T, u lock.Locker) (lock.Grant, error) {
	t.Helper()
	return u.(lock.TryAcquirer).TryAcquire(t.Context(), lock.Request{Lock: "a", TTL: time.Second})
}

// Timeouts of users for a command: patience if the command is answered, hurry if it is not and the test waits for the
// timeout. A machine that stalls twice still sends a command within hurry.
const (
	patience = 10 * time.Second
	hurry    = time.Second
)

func userAt(t *testing.T, l backends.Lock, address, params string) lock.Locker {
	t.Helper()
	return userWithin(t, l, address, patience, params)
}

func userWithin(t *testing.T, l backends.Lock, address string, timeout time.Duration, params string) lock.Locker {
	t.Helper()
	a := backends.Access{
		Backend: access.Single, Lock: l.Name, TTL: time.Second, Run: "unit",
		Nodes:  []backends.Endpoint{{Name: "redis-1", Addresses: map[string]string{access.Port: address}}},
		Params: fmt.Appendf(nil, `{"timeout_ns": %d%s}`, timeout, params),
	}
	c, err := l.Dial(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	u, err := c.Locker(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// What a server may do instead of answering at once.
const (
	hangUp  = "hang up"
	silence = "silence"
	late    = "late" // before an answer
	delay   = 300 * time.Millisecond
)

// serve answers one command after the other from the script, and repeats its last line.
func serve(t *testing.T, script ...string) string {
	t.Helper()
	lines := make(chan string, len(script))
	for _, line := range script {
		lines <- line
	}
	return serveCommands(t, func(c net.Conn, _ string) {
		line := script[len(script)-1]
		select {
		case line = <-lines:
		default:
		}
		if text, ok := strings.CutPrefix(line, late); ok {
			line = text
			time.Sleep(delay)
		}
		switch line {
		case hangUp:
			_ = c.Close()
		case silence:
		default:
			_, _ = fmt.Fprint(c, line+"\r\n")
		}
	})
}

// serveCommands answers the handshake like a Redis without HELLO. Every other command is answered by answer, which
// gets the command in upper case and as it came over the wire.
func serveCommands(t *testing.T, answer func(c net.Conn, command string)) string {
	t.Helper()
	return conformance.Listen(t, func(c net.Conn) {
		buf := make([]byte, 4096)
		for {
			n, err := c.Read(buf)
			if err != nil {
				return
			}
			if text := strings.ToUpper(string(buf[:n])); strings.Contains(text, "HELLO\r\n") {
				_, _ = fmt.Fprint(c, "-ERR unknown command\r\n")
			} else {
				answer(c, text)
			}
		}
	})
}
