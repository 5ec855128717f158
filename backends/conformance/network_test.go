package conformance

import (
	"bufio"
	"cmp"
	"context"
	"io"
	"net"
	"testing"
	"time"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/lock"
)

// hasty is a locker of the echo that returns a given error from each release without an answer.
type hasty struct {
	anew  bool   // it connects for each release, and sends nothing before it is greeted
	calls string // what its requests carry instead of the lock's name; "": the name
	says  error

	connect dialer
	conn    net.Conn
}

// ask sends a line and waits for its echo.
func (h *hasty) ask(ctx context.Context, line string) error {
	end, ok := ctx.Deadline()
	if !ok {
		end = time.Now().Add(time.Minute)
	}
	if err := h.conn.SetDeadline(end); err != nil {
		return err
	}
	if _, err := io.WriteString(h.conn, line+"\n"); err != nil {
		return err
	}
	_, err := bufio.NewReader(h.conn).ReadString('\n')
	return err
}

func (h *hasty) dial() (err error) {
	h.conn, err = h.connect("echo")
	return err
}

func (h *hasty) Acquire(ctx context.Context, r lock.Request) (lock.Grant, error) {
	return lock.Grant{Lock: r.Lock}, h.ask(ctx, "acquire "+cmp.Or(h.calls, r.Lock))
}

func (h *hasty) Release(ctx context.Context, g lock.Grant) error {
	if h.anew {
		_ = h.conn.Close()
		if err := h.dial(); err != nil {
			return err
		}
		if h.ask(ctx, "hello") != nil {
			return h.says
		}
	}
	if h.ask(ctx, "release "+cmp.Or(h.calls, g.Lock)) != nil {
		return h.says
	}
	return nil
}

func (h *hasty) Close() error { return h.conn.Close() }

// TestSentReleaseIsNotCertain has releases without an answer reported as certain. Only one that was never sent may be.
func TestSentReleaseIsNotCertain(t *testing.T) {
	for name, c := range map[string]struct {
		locker hasty
		want   string // in the error; "" for none
	}{
		"unknown":               {hasty{says: io.EOF}, ""},
		"sent":                  {hasty{says: lock.ErrNotHeld}, "reported as certain"},
		"sent, yes":             {hasty{}, "success, though"},
		"not sent":              {hasty{anew: true, says: lock.ErrNotSent}, ""},
		"not sent, yes":         {hasty{anew: true}, "success, though"},
		"not sent, not by name": {hasty{anew: true, says: lock.ErrNotSent, calls: "it"}, "reported as certain"},
	} {
		t.Run(name, func(t *testing.T) {
			l := backends.Lock{
				Name: "hasty", Offers: backends.Offers{Renewal: "none", Expires: true}, Recovery: backends.RecoversIn(recoversAt),
			}
			checkOnEcho(t, "errors-silence", l, false, c.want, func(connect dialer) (lock.Locker, error) {
				u := c.locker
				u.connect = connect
				return &u, u.dial()
			})
		})
	}
}

// recoversAt returns when a dead holder's lock is free again.
func recoversAt(ttl time.Duration) time.Duration { return ttl }
