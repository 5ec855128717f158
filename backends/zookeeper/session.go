package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/internal/node"
	"github.com/lockquake/lockquake/lock"
)

// Why a session is over.
var (
	errExpired = errors.New("the service ended the session")
	errSilent  = errors.New("no answer for the length of the session")
	errLeft    = errors.New("the session was closed")
	errGivenUp = errors.New("the session was abandoned")
	errGarbled = errors.New("invalid data on the connection")
	errHungUp  = errors.New("the server closed the connection")
)

// setting is how sessions are opened.
type setting struct {
	servers []string      // host:port
	ask     time.Duration // the requested session timeout
	lag     time.Duration // how long a server may answer pings without its leader knowing of them
	timeout time.Duration // of one request
	login   node.Login    // except for TLS, which dial knows
	dial    func(ctx context.Context, address string) (net.Conn, error)
	events  func() // called for each watch event; may be nil
	once    bool   // one connection attempt only: for questions, whose asker does not want to wait for another one
}

// session is one session of the service. When a session has expired, the library by itself opens a new one on the
// same object. This type prevents that: it makes no connection once the session is over. So nothing that is still in
// the library's queue can be carried out in another session, and a grant cannot be mistaken for one of a later
// session.
//
// The session is over in one of three cases:
//   - the service says so, which it can do only once the two can communicate again
//   - nothing was answered for the session's length, counted from the send time of the last answered request
//     (Curator's LOST)
//   - it was given up
//
// A broken connection alone does not end it.
type session struct {
	set   setting
	made  chan struct{} // closed when conn is set
	ready chan struct{} // closed when the session is granted
	over  chan struct{} // closed when the session is over
	conn  *zk.Conn

	dialed atomic.Bool

	creating sync.Mutex // held from before a create until its result is read back: users may share a session
	mu       sync.Mutex
	hello    hello
	renewed  time.Time     // send time of the latest answered request
	changed  chan struct{} // closed and replaced at each renewal
	link     *tap          // the latest connection
	lost     int           // unanswered requests on earlier connections
	create   creation      // the latest
	why      error         // set when the session is over
	closed   bool          // the service answered the request to close it
}

// creation is a create request.
type creation struct {
	number   int // within this session; 0: there was none
	xid      int32
	sent     time.Time
	zxid     int64 // of its transaction, once answered
	code     int32 // the answer
	answered bool
}

// open starts a session and waits until the service has granted it.
func open(ctx context.Context, set setting) (*session, error) {
	s := &session{
		set: set, made: make(chan struct{}), ready: make(chan struct{}), over: make(chan struct{}),
		changed: make(chan struct{}),
	}
	conn, _, err := zk.Connect(set.servers, set.ask, zk.WithDialer(s.dial), zk.WithLogger(silent{}),
		zk.WithLogInfo(false))
	if err != nil {
		return nil, fmt.Errorf("zookeeper client: %w", err)
	}
	s.conn = conn
	close(s.made)
	ctx, cancel := context.WithTimeout(ctx, set.timeout)
	defer cancel()
	select {
	case <-s.ready:
		return s, logIn(ctx, s)
	case <-s.over:
	case <-ctx.Done():
		s.end(ctx.Err())
	}
	return nil, fmt.Errorf("no session: %w", s.reason())
}

// logIn logs in if the service requires it. The library repeats that on every later connection.
func logIn(ctx context.Context, s *session) error {
	if s.set.login.User == "" {
		return nil
	}
	_, err := ask(ctx, s, func(c *zk.Conn) (struct{}, error) {
		return struct{}{}, c.AddAuth("digest", []byte(s.set.login.User+":"+s.set.login.Password))
	})
	if err != nil {
		s.end(errGivenUp)
		return fmt.Errorf("log in as %s: %w", s.set.login.User, err)
	}
	return nil
}

// silent discards what the library would print on standard error, where a client process keeps its own log.
type silent struct{}

func (silent) Printf(string, ...any) {}

// dial makes the library's connections.
func (s *session) dial(_, address string, timeout time.Duration) (net.Conn, error) {
	if s.set.once && s.dialed.Swap(true) {
		s.end(errHungUp)
	}
	if err := s.reason(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	c, err := s.set.dial(ctx, address)
	if err != nil {
		if s.set.once {
			s.end(err)
		}
		return nil, err
	}
	t := newTap(c, s)
	// A paused server accepts connections, and the library waits for its first answer for 6.7 times the TTL.
	time.AfterFunc(timeout, t.hangUpIfSilent)
	s.mu.Lock()
	old := s.link
	if s.why != nil {
		err = s.why
	} else {
		s.link = t
	}
	s.mu.Unlock()
	if err != nil {
		return nil, errors.Join(err, t.Close())
	}
	if old != nil {
		_ = old.Close() // the library leaves it open if the session was over
		s.mu.Lock()
		s.lost += old.losses()
		s.mu.Unlock()
	}
	return t, nil
}

// greeted takes the answer to a connect request.
func (s *session) greeted(sent time.Time, h hello) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h.session == 0 {
		s.endLocked(errExpired)
		return
	}
	first := s.hello.session == 0
	s.hello = h
	s.renewLocked(sent)
	if first {
		close(s.ready)
		time.AfterFunc(time.Until(sent.Add(h.timeout)), s.lookAround)
	}
}

// asked notes the create requests. Once the session was given up it allows no request. While the session is being
// closed the library goes on until its own close request.
func (s *session) asked(r request) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.why != nil && !errors.Is(s.why, errLeft) {
		return false
	}
	if r.op == opCreate {
		s.create = creation{number: s.create.number + 1, xid: r.xid, sent: r.sent}
	}
	return true
}

// answered takes every answer for a renewal: the server restarts the session's time at each request.
func (s *session) answered(r request, zxid int64, code int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.op == opCreate && r.xid == s.create.xid {
		s.create.zxid, s.create.code, s.create.answered = zxid, code, true
	}
	switch {
	case r.op == opClose:
		s.closed = true
	case code == codeExpired:
		s.endLocked(errExpired)
	case code != codeMoved:
		s.renewLocked(r.sent)
	}
}

// garbled gives the session up.
func (s *session) garbled() { s.end(errGarbled) }

// notified counts watch events.
func (s *session) notified() {
	if s.set.events != nil {
		s.set.events()
	}
}

func (s *session) renewLocked(sent time.Time) {
	if s.why != nil || !sent.After(s.renewed) {
		return
	}
	s.renewed = sent
	close(s.changed)
	s.changed = make(chan struct{})
}

// lookAround gives the session up once it has been silent for its length.
func (s *session) lookAround() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.why != nil {
		return
	}
	if left := time.Until(s.renewed.Add(s.hello.timeout)); left > 0 {
		time.AfterFunc(left, s.lookAround)
		return
	}
	s.endLocked(errSilent)
}

// validity returns the validity of a grant under the session, and a channel that is closed when it changes. It counts
// from the send time of the last answered request. A follower answers pings by itself and informs the leader with its
// next heartbeat. One that is cut off from the leader goes on answering for sync_limit ticks. So that time and one
// more tick is subtracted, besides the drift of clocks.
func (s *session) validity() (lock.Validity, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.renewed.IsZero() {
		return lock.Unknown(), s.changed
	}
	length := s.hello.timeout
	return lock.Until(s.renewed.Add(length - s.set.lag - backends.Drift(length))), s.changed
}

// usable reports whether a grant under the session could be believed in now.
func (s *session) usable() bool {
	if s.reason() != nil {
		return false
	}
	v, _ := s.validity()
	return v.Covers(time.Now())
}

// reason returns why the session is over; nil: it is not.
func (s *session) reason() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.why
}

// terms returns what the service granted: the session's number and timeout.
func (s *session) terms() hello {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hello
}

// created returns the latest create request.
func (s *session) created() creation {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.create
}

// losses returns the number of requests that were written and never answered.
func (s *session) losses() int {
	s.mu.Lock()
	n, link := s.lost, s.link
	s.mu.Unlock()
	if link != nil {
		n += link.losses()
	}
	return n
}
