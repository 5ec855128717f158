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

// grace is how long the cancel of a statement may take after its context ended; then its connection is closed.
const grace = 500 * time.Millisecond

// session is one connection to the server, which the server calls a session. Between two statements a goroutine reads
// from it, so that its end is noticed at once. Its methods are called one at a time; if users share it, each waits
// for its turn.
type session struct {
	turn   chan struct{} // full while a user has its turn; nil if the session is not shared
	conn   *pgx.Conn
	link   *link
	stop   context.CancelFunc // of listen
	done   chan struct{}      // closed when listen has returned
	broken chan struct{}      // closed when the connection is known to be gone
	holds  int                // grants under this session
}

// target is the server, role and settings of a session.
type target struct {
	address  string
	login    node.Login
	keys     keyspace
	name     string // application_name
	database string // to connect to; "": postgres
	dial     func(ctx context.Context, network, address string) (net.Conn, error)
	timeout  time.Duration
}

// config returns a configuration with which one connect is one attempt, and one statement is sent once.
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

// open connects. Its error is always certain: a session that does not exist did nothing.
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

// lost reports whether the connection is known to be gone.
func (s *session) lost() bool {
	select {
	case <-s.broken:
		return true
	default:
		return false
	}
}

// errGone means that the session had ended before the request.
var errGone = fmt.Errorf("%w: the connection is gone", lock.ErrNotSent)

// do runs one or more statements and classifies their error.
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

// close ends the session, and with it all that the server keeps for it. It does not wait for the server to notice.
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
	_ = s.conn.Close(ctx) // this side is closed in either case; the server notices when it can
}

// listening marks a context that only listens: its end sets a deadline and sends no cancel request.
type listening struct{}

// ending is what happens when a statement's context ends: the server is asked to cancel it, and after the grace the
// connection is closed. An answer that says "cancelled" is certain.
type ending struct {
	conn    *pgconn.PgConn
	cancel  *pgconn.CancelRequestContextWatcherHandler
	listens bool
}

// HandleCancel begins the ending.
func (e *ending) HandleCancel(ctx context.Context) {
	if e.listens = ctx.Value(listening{}) != nil; e.listens {
		_ = e.conn.Conn().SetDeadline(time.Now()) // a closed connection has already ended
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

// link notes when the first byte of a request was handed to the connection. That is the send time, and it proves that
// something was sent. If the library first prepares a statement, the preparation counts, so the time is never too
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

// counted is a connection whose writes are noted in the link.
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

// The server's error codes for a statement that gave up waiting.
const (
	codeLockNotAvailable = "55P03"
	codeQueryCancelled   = "57014"
)

// classify classifies an error of a statement. If the server answered with an error that did not end the session, it
// rolled the statement back: certainly not done. A statement that was never sent, as the link knows, is certainly not
// done either. The library's SafeToRetry is not used, because it also holds for a connection that broke while a reply
// was read. The outcome of any other error is unknown.
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

// withdrawn reports whether the server ended a statement because its caller gave up: then a statement that was to
// take a lock did not get it. If the server ended it by itself, as after its lock_timeout or statement_timeout, that
// is an error and does not mean that the lock is held. Do not use it for a statement that gives a lock back.
func withdrawn(ctx context.Context, err error) bool {
	var answer *pgconn.PgError
	return ctx.Err() != nil && errors.As(err, &answer) && answer.SeverityUnlocalized == "ERROR" &&
		(answer.Code == codeLockNotAvailable || answer.Code == codeQueryCancelled)
}
