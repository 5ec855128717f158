package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"

	"github.com/lockquake/lockquake/internal/node"
	"github.com/lockquake/lockquake/lock"
)

// grace is how long a statement whose context is over may take to be cancelled, before its connection is given up.
const grace = 500 * time.Millisecond

// session is one connection to the server, which is what it calls a session. Between two statements somebody listens on
// it, so that its end is seen at once. Its methods are called one at a time; where users share it, each waits for its
// turn.
type session struct {
	turn   chan struct{} // has room for the user whose turn it is; nil where nobody shares it
	conn   *pgx.Conn
	link   *link
	stop   context.CancelFunc // of the listening
	done   chan struct{}      // closed when it has stopped
	broken chan struct{}      // closed when the connection was seen to be gone
	holds  int                // grants that stand with this session
}

// target is where a session goes, and as whom.
type target struct {
	address  string
	login    node.Login
	keys     keyspace
	name     string // application_name
	database string // to connect to; "": postgres
	dial     func(ctx context.Context, network, address string) (net.Conn, error)
	timeout  time.Duration
}

// config makes a configuration in which one connect is one attempt, and one statement is sent once.
func (t target) config(l *link) (*pgx.ConnConfig, error) {
	host, port, err := net.SplitHostPort(t.address)
	if err != nil {
		return nil, fmt.Errorf("postgres: address %q: %w", t.address, err)
	}
	c, err := pgx.ParseConfig(fmt.Sprintf("host=%s port=%s sslmode=disable", host, port))
	if err != nil {
		return nil, fmt.Errorf("postgres: %w", err)
	}
	if c.TLSConfig, err = t.login.TLS.Config(host); err != nil {
		return nil, fmt.Errorf("postgres: %w", err)
	}
	c.User, c.Password, c.Database = t.login.User, t.login.Password, cmp.Or(t.database, "postgres")
	if t.keys != "" {
		c.RuntimeParams["search_path"] = t.keys.quoted()
	}
	c.RuntimeParams["application_name"] = t.name
	c.ConnectTimeout = t.timeout
	c.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := t.dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &counted{Conn: conn, link: l}, nil
	}
	c.BuildContextWatcherHandler = func(p *pgconn.PgConn) ctxwatch.Handler {
		return &ending{conn: p, cancel: &pgconn.CancelRequestContextWatcherHandler{Conn: p, DeadlineDelay: grace}}
	}
	return c, nil
}

// open connects. Its error is always certain: a session that is not there did nothing.
func open(ctx context.Context, t target) (*session, error) {
	l := &link{}
	c, err := t.config(l)
	if err != nil {
		return nil, err
	}
	ctx, done := context.WithTimeout(ctx, t.timeout)
	defer done()
	conn, err := pgx.ConnectConfig(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", lock.ErrNotSent, err)
	}
	s := &session{conn: conn, link: l, broken: make(chan struct{})}
	s.listen()
	return s, nil
}

// listen waits for the end of the connection until stop is called.
func (s *session) listen() {
	ctx, stop := context.WithCancel(context.WithValue(context.Background(), listening{}, true))
	done := make(chan struct{})
	s.stop, s.done = stop, done
	go func() {
		defer close(done)
		for {
			_, err := s.conn.WaitForNotification(ctx)
			switch {
			case s.conn.IsClosed():
				close(s.broken)
				return
			case ctx.Err() != nil:
				return
			case err != nil:
				s.hangUp()
				close(s.broken)
				return
			}
		}
	}()
}

// lost tells whether the connection was seen to be gone.
func (s *session) lost() bool {
	select {
	case <-s.broken:
		return true
	default:
		return false
	}
}

// errGone says that a session was over before anything was asked of it.
var errGone = fmt.Errorf("%w: the connection is gone", lock.ErrNotSent)

// do runs one or more statements and says what an error of theirs means.
func (s *session) do(ctx context.Context, f func(ctx context.Context, c *pgx.Conn) error) error {
	if s.turn != nil {
		select {
		case s.turn <- struct{}{}:
			defer func() { <-s.turn }()
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", lock.ErrNotSent, ctx.Err())
		}
	}
	s.stop()
	<-s.done
	if s.lost() {
		return errGone
	}
	s.link.begin()
	err := f(ctx, s.conn)
	if s.conn.IsClosed() {
		close(s.broken)
	} else {
		s.listen()
	}
	return classify(err, s.link.sentAt())
}

// close ends the session, and with it all that the server keeps for it. Nobody waits for the server to notice.
func (s *session) close() {
	if s.turn != nil {
		s.turn <- struct{}{}
		defer func() { <-s.turn }()
	}
	s.stop()
	<-s.done
	if s.lost() {
		return
	}
	s.hangUp()
	close(s.broken)
}

// hangUp says goodbye and closes the connection.
func (s *session) hangUp() {
	ctx, done := context.WithTimeout(context.WithValue(context.Background(), listening{}, true), grace)
	defer done()
	_ = s.conn.Close(ctx) // either way it is closed here; the server sees it when it can
}

// listening marks the context of whoever only listens: its end sets a deadline and sends no cancel request.
type listening struct{}

// ending is what happens when the context of a statement is over: the server is asked to cancel it, and after the grace
// the connection is given up. An answer that says "cancelled" is certain.
type ending struct {
	conn    *pgconn.PgConn
	cancel  *pgconn.CancelRequestContextWatcherHandler
	listens bool
}

// HandleCancel begins the ending.
func (e *ending) HandleCancel(ctx context.Context) {
	if e.listens = ctx.Value(listening{}) != nil; e.listens {
		_ = e.conn.Conn().SetDeadline(time.Now()) // on a closed connection there is nothing to end
		return
	}
	e.cancel.HandleCancel(ctx)
}

// HandleUnwatchAfterCancel ends it.
func (e *ending) HandleUnwatchAfterCancel() {
	if e.listens {
		_ = e.conn.Conn().SetDeadline(time.Time{})
		return
	}
	e.cancel.HandleUnwatchAfterCancel()
}

// link notes when the first byte of a request was handed to the connection: that is the send time, and proves that
// something was sent. Where the library prepares a statement first, the preparation counts, so the time is never too
// late.
type link struct {
	mu   sync.Mutex
	sent time.Time // zero: nothing was written
}

func (l *link) begin() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent = time.Time{}
}

func (l *link) sentAt() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sent
}

// counted is a connection whose writes the link sees.
type counted struct {
	net.Conn
	link *link
}

// Write notes the time of the first write.
func (c *counted) Write(b []byte) (int, error) {
	c.link.mu.Lock()
	if c.link.sent.IsZero() {
		c.link.sent = time.Now()
	}
	c.link.mu.Unlock()
	return c.Conn.Write(b)
}

// The server's codes for a statement that gave up waiting.
const (
	codeLockNotAvailable = "55P03"
	codeQueryCancelled   = "57014"
)

// classify says what an error of a statement means. An error that the server answered, and that did not end the
// session, rolled the statement back: certainly not done. A statement that was never sent is certainly not done
// either; the link knows that. The library's own word for it, SafeToRetry, is also said of a connection that broke
// while a reply was read. The outcome of any other error is unknown.
func classify(err error, sent time.Time) error {
	var answer *pgconn.PgError
	switch {
	case err == nil, errors.Is(err, pgx.ErrNoRows):
		return err
	case errors.As(err, &answer) && answer.SeverityUnlocalized == "ERROR":
		return fmt.Errorf("%w: %w", lock.ErrRefused, err)
	case sent.IsZero():
		return fmt.Errorf("%w: %w", lock.ErrNotSent, err)
	}
	return err
}

// withdrawn reports whether the server gave up a statement because its caller did: one that was to take a lock did not
// get it. Where the server gave up by itself, as by its lock_timeout or statement_timeout, that is an error: nobody was
// said to have the lock. For a statement that was to give a lock back this would be the wrong answer.
func withdrawn(ctx context.Context, err error) bool {
	var answer *pgconn.PgError
	return ctx.Err() != nil && errors.As(err, &answer) && answer.SeverityUnlocalized == "ERROR" &&
		(answer.Code == codeLockNotAvailable || answer.Code == codeQueryCancelled)
}
