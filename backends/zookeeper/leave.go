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

// grace is how long the end of a session, or of a wait, may take before its caller stops waiting for it.
const grace = 500 * time.Millisecond

// end gives the session up: nothing more is written for it, so that it cannot be kept alive, and in the background the
// service is told to close it, which removes whatever hangs on it. If that does not succeed it expires.
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
		s.conn.Close() // ends the library's goroutines; it has no connection to say anything over
	}()
}

// leave closes the session over its own connection, and returns nil when the service has answered: whatever hung on the
// session is gone. Else it goes on in the background as end does.
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
	go func() { defer close(done); s.conn.Close() }() // sends the request to close, waits for the answer at most 1 s
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

// farewell closes the session over a connection of its own: the library cannot take up a session that it has let go. It
// tries one server after the other until ctx ends, and returns true when the session is no more by the service's word.
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

// gone tells whether the service itself says that a session is over; it asks the service if need be.
func (s *session) gone(ctx context.Context) bool {
	s.mu.Lock()
	h, done := s.hello, s.closed || errors.Is(s.why, errExpired)
	s.mu.Unlock()
	return done || s.farewell(ctx, h)
}

// dismiss takes the session up at one server and closes it.
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
		return fmt.Errorf("take the session up: %w", err)
	}
	if again, err := parseHello(answer); err != nil || again.session == 0 {
		return err // nil: the service knows no such session
	}
	_, err = exchange(c, closeRequest())
	return err
}

// connectRequest asks for the session to be taken up: version, last zxid seen, timeout, session, password.
func connectRequest(h hello) []byte {
	b := binary.BigEndian.AppendUint32(nil, 0)
	b = binary.BigEndian.AppendUint64(b, 0)
	b = binary.BigEndian.AppendUint32(b, uint32(h.timeout.Milliseconds()))
	b = binary.BigEndian.AppendUint64(b, uint64(h.session))
	b = binary.BigEndian.AppendUint32(b, uint32(len(h.password)))
	return append(b, h.password...)
}

// closeRequest is a head without a body.
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
