package conformance

import (
	"bufio"
	"context"
	"errors"
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

// echo is a network between gates and a service that echoes each line. It does not use the kernel's network: in a
// testing/synctest bubble, waiting for that would stop the time.
type echo struct{ gate chan net.Conn }

func newEcho() echo { return echo{make(chan net.Conn)} }

// connect dials a gate.
func (e echo) connect(string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	e.gate <- theirs
	return ours, nil
}

// Listen returns the gate's side: the echo itself is the listener.
func (e echo) Listen() (net.Listener, error) { return e, nil }

func (e echo) Accept() (net.Conn, error) {
	c, ok := <-e.gate
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}

func (e echo) Close() error   { close(e.gate); return nil }
func (e echo) Addr() net.Addr { return &net.TCPAddr{} }

// Dial connects to the service.
func (e echo) Dial(string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	go func() {
		defer theirs.Close()
		_, _ = io.Copy(theirs, theirs)
	}()
	return ours, nil
}

// counting is a locker of the echo. If configured to, it counts promises from the time of the reply.
type counting struct {
	grants, renewals bool          // count from the reply
	margin           time.Duration // that it subtracts from each promise

	turn chan struct{} // one request at a time
	conn net.Conn      // nil: in this process
	in   *bufio.Reader
}

func (c *counting) promise(ctx context.Context, ttl time.Duration, fromReply bool) (lock.Validity, error) {
	c.turn <- struct{}{}
	defer func() { <-c.turn }()
	from := time.Now()
	if c.conn != nil {
		if _, err := io.WriteString(c.conn, "please\n"); err != nil {
			return lock.Unknown(), err
		}
		if _, err := c.in.ReadString('\n'); err != nil {
			return lock.Unknown(), err
		}
	}
	lock.At(ctx, "answered")
	if fromReply {
		from = time.Now()
	}
	return lock.Until(from.Add(ttl - c.margin)), nil
}

func (c *counting) Acquire(ctx context.Context, r lock.Request) (g lock.Grant, err error) {
	g.ValidUntil, err = c.promise(ctx, r.TTL, c.grants)
	return g, err
}

func (c *counting) Renew(ctx context.Context, g lock.Grant, ttl time.Duration) (_ lock.Grant, err error) {
	g.ValidUntil, err = c.promise(ctx, ttl, c.renewals)
	return g, err
}

func (c *counting) Watch(ctx context.Context, _ lock.Grant) <-chan lock.Change {
	out := make(chan lock.Change)
	go func() {
		defer close(out)
		for ctx.Err() == nil {
			v, err := c.promise(context.WithoutCancel(ctx), lateTTL, c.renewals)
			if err != nil {
				return
			}
			select {
			case out <- lock.Change{ValidUntil: v}:
			case <-ctx.Done():
			}
		}
	}()
	return out
}

func (*counting) Release(context.Context, lock.Grant) error { return nil }

func (c *counting) Close() error {
	if c.conn == nil {
		return nil
	}
	return c.conn.Close()
}

// counters is a connection whose users are all of one kind.
type counters func() (lock.Locker, error)

func (c counters) Locker(context.Context, int) (lock.Locker, error) { return c() }
func (counters) Close() error                                       { return nil }

// checkOnEcho runs one check on a lock of the echo in a bubble, where undelayed answers take no time. Its result must
// contain want; "": it passes. dial makes a user.
func checkOnEcho(t *testing.T, check string, l backends.Lock, inside bool, want string, dial func(connect dialer) (lock.Locker, error)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		checks := Checks()
		c := checks[slices.IndexFunc(checks, func(c Check) bool { return c.Name == check })]
		e := newEcho()
		l.Dial = func(_ context.Context, a backends.Access) (backends.Connection, error) {
			connect := e.Dial // bypassing the gate
			if a.Via != nil {
				connect = e.connect
			}
			return counters(func() (lock.Locker, error) { return dial(connect) }), nil
		}
		access := backends.Access{Backend: "echo", TTL: lateTTL, Run: "unit"}
		access.Nodes = []backends.Endpoint{{Name: "echo-1", Addresses: map[string]string{"echo": "echo"}}}
		o := Options{Backend: backends.Backend{Name: "echo", Locks: []backends.Lock{l}, InProcess: inside}, Access: access, network: e}
		err := one(t.Context(), c, o, t.Logf)
		time.Sleep(lateTTL) // until the gate has forwarded delayed answers: after the return, time stands still
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("says %v, should say %q", err, want)
		}
	})
}

// dialer connects a user.
type dialer func(address string) (net.Conn, error)

// lateTTL is the TTL of these tests. A delayed answer is late by three tenths of it.
const lateTTL = 800 * time.Millisecond

// TestValidityIsCountedFromSending runs the check on lockers that count from the reply, and on some that do not.
func TestValidityIsCountedFromSending(t *testing.T) {
	for name, c := range map[string]struct {
		locker  *counting
		renewal string
		inside  bool
		want    string // in the error; "" for none
	}{
		"from sending":               {&counting{}, "call", false, ""},
		"from sending, kept alive":   {&counting{}, "background", false, ""},
		"from sending, inside":       {&counting{}, "call", true, ""},
		"grants from the reply":      {&counting{grants: true}, "none", false, "a grant is valid"},
		"grants, inside":             {&counting{grants: true}, "none", true, "a grant is valid"},
		"with a margin":              {&counting{margin: lateTTL / 2}, "call", false, ""},
		"grants, with a margin":      {&counting{grants: true, margin: lateTTL / 2}, "none", false, "a grant is valid"},
		"renewals from the reply":    {&counting{renewals: true}, "call", false, "a renewal is valid"},
		"keep-alives from the reply": {&counting{renewals: true}, "background", false, "a keep-alive is valid"},
	} {
		t.Run(name, func(t *testing.T) {
			l := backends.Lock{Name: "counting", Offers: backends.Offers{Renewal: c.renewal, Expires: true}, Points: []string{"answered"}}
			checkOnEcho(t, "validity-late", l, c.inside, c.want, func(connect dialer) (lock.Locker, error) {
				u := &counting{grants: c.locker.grants, renewals: c.locker.renewals, margin: c.locker.margin, turn: make(chan struct{}, 1)}
				if c.inside {
					return u, nil
				}
				var err error
				u.conn, err = connect("echo")
				u.in = bufio.NewReader(u.conn)
				return u, err
			})
		})
	}
}

// TestValidityLateIsNotForAll uses a lock whose grants name no end: the check does not apply, and says why.
func TestValidityLateIsNotForAll(t *testing.T) {
	for _, c := range Checks() {
		if c.Name != "validity-late" {
			continue
		}
		if why := c.needs(&bench{}); why != "grants have no end" {
			t.Errorf("says %q", why)
		}
		if err := (&remaining{}).atOnce("a grant", lock.Endless()); err == nil || errors.Is(err, errSkip) {
			t.Errorf("an expiring grant without an end: %v", err)
		}
	}
}
