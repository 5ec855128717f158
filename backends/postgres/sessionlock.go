package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/lock"
)

// recipe defines a lock that lasts as long as its session, by the statements that it sends. Each call is a sequence
// of requests, one at a time, on a connection that no one else uses.
type recipe struct {
	// take asks for the lock, and waits for it if wait is true. got is false if the lock was certainly not granted.
	take func(ctx context.Context, c *pgx.Conn, name string, wait bool) (got bool, err error)
	// undo makes certain, after take got an error from the server, that the session does not have the lock.
	undo func(ctx context.Context, c *pgx.Conn, name string) error
	// give frees the lock. had is false if the session did not have it.
	give func(ctx context.Context, c *pgx.Conn, name string) (had bool, err error)
	// check asks the server whether the session has it.
	check func(ctx context.Context, c *pgx.Conn, name string) (has bool, err error)
	// alone means that a session carries one grant at a time; a user who holds two locks has two sessions.
	alone bool
}

// dial returns how a client process connects.
func (r recipe) dial(_ context.Context, a backends.Access) (backends.Connection, error) {
	c, err := newConnection(a)
	if err != nil {
		return nil, err
	}
	c.locker = func(ctx context.Context, user int) (lock.Locker, error) {
		s, err := c.first(ctx, user)
		if err != nil {
			return nil, err
		}
		return &sessionHolder{recipe: r, conn: c, user: user, sessions: []*session{s}, held: map[string]*held{}}, nil
	}
	return c, nil
}

// sessionHolder is one user of a lock that lasts as long as its session. The server promises no time, so its grants
// name no end. Their holder is entitled until the server ended the session, which the service's list of sessions
// shows.
type sessionHolder struct {
	recipe
	conn     *connection
	user     int
	sessions []*session
	held     map[string]*held // by id
	grants   int
}

// held is a grant that was not given back.
type held struct {
	session *session
	over    chan struct{} // closed when the user gives it back
}

// sessionWithRoom returns a session that can carry one more grant.
func (l *sessionHolder) sessionWithRoom(ctx context.Context) (*session, error) {
	var live []*session
	for _, s := range l.sessions {
		if !s.lost() {
			live = append(live, s)
		}
	}
	l.sessions = live
	for _, s := range live {
		if !l.alone || s.holds == 0 {
			return s, nil
		}
	}
	s, err := l.conn.again(ctx, l.user)
	if err != nil {
		return nil, err
	}
	l.sessions = append(l.sessions, s)
	return s, nil
}

// Acquire waits in the server's queue.
func (l *sessionHolder) Acquire(ctx context.Context, r lock.Request) (lock.Grant, error) {
	return l.acquire(ctx, r, true)
}

// TryAcquire makes one attempt.
func (l *sessionHolder) TryAcquire(ctx context.Context, r lock.Request) (lock.Grant, error) {
	ctx, done := context.WithTimeout(ctx, l.conn.params.Timeout)
	defer done()
	return l.acquire(ctx, r, false)
}

func (l *sessionHolder) acquire(ctx context.Context, r lock.Request, wait bool) (lock.Grant, error) {
	s, err := l.sessionWithRoom(ctx)
	if err != nil {
		return lock.Grant{}, err
	}
	lock.At(ctx, "before-lock")
	got, sent := false, time.Time{}
	err = s.do(ctx, func(ctx context.Context, c *pgx.Conn) (err error) {
		got, err = l.take(ctx, c, r.Lock, wait)
		sent = s.link.sentAt()
		return err
	})
	switch {
	case err != nil:
		return lock.Grant{}, l.withdraw(ctx, s, r.Lock, err)
	case !got:
		return lock.Grant{}, fmt.Errorf("%w: %s", lock.ErrContended, r.Lock)
	}
	lock.At(ctx, "lock-done")
	l.grants++
	if l.alone {
		s.holds++
	}
	g := lock.Grant{
		Lock: r.Lock, Mode: lock.Exclusive, Token: lock.NoToken, Issued: sent, ValidUntil: lock.Endless(),
		ID: fmt.Sprintf("%d/%d/%d/%d", s.conn.PgConn().PID(), l.conn.access.Client, l.user, l.grants),
	}
	l.held[g.ID] = &held{session: s, over: make(chan struct{})}
	return g, nil
}

// withdraw makes certain that an acquire that got an error from the server left nothing behind: a cancel may come
// after the grant and before the answer. If even that fails, the session is ended and the outcome is unknown.
func (l *sessionHolder) withdraw(ctx context.Context, s *session, name string, err error) error {
	if s.lost() {
		return fmt.Errorf("wait for %s: %w", name, err)
	}
	bounded, done := context.WithTimeout(context.WithoutCancel(ctx), l.conn.params.Timeout)
	defer done()
	undo := s.do(bounded, func(ctx context.Context, c *pgx.Conn) error { return l.undo(ctx, c, name) })
	if undo != nil {
		s.close()
		return fmt.Errorf("wait for %s: %v, and then: %v", name, err, undo)
	}
	switch {
	case ctx.Err() != nil && !lock.Certain(err), withdrawn(ctx, err):
		return fmt.Errorf("%w: the wait for %s was withdrawn: %w", lock.ErrContended, name, err)
	case !lock.Certain(err):
		return fmt.Errorf("%w: the wait for %s ended, and was taken back: %w", lock.ErrRefused, name, err)
	}
	return fmt.Errorf("wait for %s: %w", name, err)
}

// Release gives the lock back. An error ends the session, and with it anything left.
func (l *sessionHolder) Release(ctx context.Context, g lock.Grant) error {
	lock.At(ctx, "before-unlock")
	h, ok := l.held[g.ID]
	if !ok {
		return fmt.Errorf("%w: this user has no grant %s", lock.ErrNotHeld, g.ID)
	}
	delete(l.held, g.ID)
	close(h.over)
	if l.alone {
		h.session.holds--
	}
	had := false
	err := h.session.do(ctx, func(ctx context.Context, c *pgx.Conn) (err error) {
		had, err = l.give(ctx, c, g.Lock)
		return err
	})
	if err != nil {
		if h.session.lost() {
			return fmt.Errorf("unlock %s: %w", g.Lock, err)
		}
		h.session.close()
		return fmt.Errorf("unlock %s, which ended the session: %v", g.Lock, err)
	}
	lock.At(ctx, "unlock-done")
	if !had {
		return fmt.Errorf("%w: the session did not have %s", lock.ErrNotHeld, g.Lock)
	}
	return nil
}

// Check asks the server whether the session has the lock.
func (l *sessionHolder) Check(ctx context.Context, g lock.Grant) error {
	h, ok := l.held[g.ID]
	if !ok {
		return fmt.Errorf("%w: this user has no grant %s", lock.ErrNotHeld, g.ID)
	}
	ctx, done := context.WithTimeout(ctx, l.conn.params.Timeout)
	defer done()
	has := false
	err := h.session.do(ctx, func(ctx context.Context, c *pgx.Conn) (err error) {
		has, err = l.check(ctx, c, g.Lock)
		return err
	})
	if err != nil {
		return fmt.Errorf("ask for %s: %w", g.Lock, err)
	}
	if !has {
		return fmt.Errorf("%w: the session does not have %s", lock.ErrNotHeld, g.Lock)
	}
	return nil
}

// Watch reports the end of the session as this side sees it: a closed connection. If the server is unreachable, that
// takes the TCP timeout.
func (l *sessionHolder) Watch(ctx context.Context, g lock.Grant) <-chan lock.Change {
	h, ok := l.held[g.ID]
	if !ok {
		return backends.Unwatched()
	}
	return backends.HeldGrant{Lost: h.session.broken, Over: h.over}.Watch(ctx, g.ValidUntil)
}

// Close ends the sessions, and with them everything that the user holds.
func (l *sessionHolder) Close() error {
	for id, h := range l.held {
		delete(l.held, id)
		close(h.over)
	}
	for _, s := range l.sessions {
		if s.turn == nil { // a shared one ends with the connection
			s.close()
		}
	}
	l.sessions = nil
	return nil
}
