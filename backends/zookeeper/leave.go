package zookeeper

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/lockquake/lockquake/internal/clock"
)

// grace is how long a caller waits for the end of a session or of a wait.
const grace = 500 * time.Millisecond

// end gives the session up. Nothing more is written for it, so it cannot be kept alive. In the background the service
// is asked to close it, which removes everything under it. If that fails, it expires.
func (s *session) end(why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endLocked(why)
}

func (s *session) endLocked(why error) {
	if s.why != nil {
		return
	}
	s.why = why
	close(s.over)
	link, h := s.link, s.hello
	s.link = nil
	go func() {
		if link != nil {
			_ = link.Close()
		}
		if h.session != 0 && !errors.Is(why, errExpired) {
			s.farewellBehind(h)
		}
		<-s.made
		s.conn.Close() // ends the library's goroutines; it has no connection for sending
	}()
}

// leave closes the session over its own connection. It returns nil once the service has answered: then everything
// under the session is gone. Otherwise the close goes on in the background, as after end.
func (s *session) leave() error {
	s.mu.Lock()
	if s.why != nil {
		defer s.mu.Unlock()
		return s.why
	}
	s.why = errLeft // no new connection, no renewal
	close(s.over)
	link, h := s.link, s.hello
	s.link = nil
	s.mu.Unlock()

	done := make(chan struct{})
	go func() { defer close(done); s.conn.Close() }() // sends the close request and waits at most 1 s for the answer
	t := time.NewTimer(grace)
	defer t.Stop()
	select {
	case <-done:
	case <-t.C:
	}
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	if closed {
		return nil
	}
	if link != nil {
		_ = link.Close()
	}
	go s.farewellBehind(h)
	return errors.New("the service did not confirm the end of the session")
}

// farewell closes the session over a new connection, because the library cannot resume a session that it has let go.
// It tries the servers in turn until ctx ends, and returns true once the service says that the session is over.
func (s *session) farewell(ctx context.Context, h hello) bool {
	for i := 0; ctx.Err() == nil; i++ {
		if s.set.dismiss(ctx, s.set.servers[i%len(s.set.servers)], h) == nil {
			s.mu.Lock()
			s.closed = true
			s.mu.Unlock()
			return true
		}
		clock.Sleep(ctx, grace/10)
	}
	return false
}

// farewellBehind tries for as long as the session may live.
func (s *session) farewellBehind(h hello) {
	ctx, cancel := context.WithTimeout(context.Background(), h.timeout+grace)
	defer cancel()
	s.farewell(ctx, h)
}

// gone reports whether the service itself says that a session is over; it asks the service if necessary.
func (s *session) gone(ctx context.Context) bool {
	s.mu.Lock()
	h, done := s.hello, s.closed || errors.Is(s.why, errExpired)
	s.mu.Unlock()
	return done || s.farewell(ctx, h)
}

// dismiss resumes the session at one server and closes it.
func (t setting) dismiss(ctx context.Context, server string, h hello) error {
	ctx, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	c, err := t.dial(ctx, server)
	if err != nil {
		return err
	}
	defer c.Close()
	if end, ok := ctx.Deadline(); ok {
		if err := c.SetDeadline(end); err != nil {
			return err
		}
	}
	answer, err := exchange(c, connectRequest(h))
	if err != nil {
		return fmt.Errorf("resume the session: %w", err)
	}
	if again, err := parseHello(answer); err != nil || again.session == 0 {
		return err // nil: the service does not know the session
	}
	_, err = exchange(c, closeRequest())
	return err
}

// connectRequest returns the request that resumes the session: version, last zxid seen, timeout, session, password.
func connectRequest(h hello) []byte {
	b := binary.BigEndian.AppendUint32(nil, 0)
	b = binary.BigEndian.AppendUint64(b, 0)
	b = binary.BigEndian.AppendUint32(b, uint32(h.timeout.Milliseconds()))
	b = binary.BigEndian.AppendUint64(b, uint64(h.session))
	b = binary.BigEndian.AppendUint32(b, uint32(len(h.password)))
	return append(b, h.password...)
}

// closeRequest returns a header without a body.
func closeRequest() []byte {
	op := int32(opClose)
	b := binary.BigEndian.AppendUint32(nil, 1)
	return binary.BigEndian.AppendUint32(b, uint32(op))
}

// exchange writes a frame and reads one.
func exchange(c net.Conn, body []byte) ([]byte, error) {
	frame := binary.BigEndian.AppendUint32(nil, uint32(len(body)))
	if _, err := c.Write(append(frame, body...)); err != nil {
		return nil, err
	}
	var head [4]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		return nil, err
	}
	n := number(head[:])
	if n < 0 || n > maxFrame {
		return nil, errNoFrame
	}
	answer := make([]byte, n)
	_, err := io.ReadFull(c, answer)
	return answer, err
}
