package register

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"time"

	"github.com/lockquake/lockquake/lock"
)

// line is a connection to a process of ours that answers each line of JSON by one, in order. After an error of unknown
// outcome it connects anew: a late answer must never be taken for the answer to another request.
type line struct {
	who     string // for errors
	address string
	conn    net.Conn
	in      *bufio.Reader
}

func (l *line) connect(ctx context.Context) error {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", l.address)
	if err != nil {
		return fmt.Errorf("%s: %w", l.who, err)
	}
	l.conn, l.in = c, bufio.NewReaderSize(c, maxRequest)
	return nil
}

// ask sends a request and reads the answer. An error that wraps lock.ErrNotSent says that it was certainly not sent;
// after any other one nobody knows.
func (l *line) ask(ctx context.Context, request, answer any) error {
	if l.conn == nil {
		if err := l.connect(ctx); err != nil {
			return fmt.Errorf("%w: %w", lock.ErrNotSent, err)
		}
	}
	if err := l.exchange(ctx, request, answer); err != nil {
		_ = l.Close() // broken already
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return fmt.Errorf("%s: %w", l.who, err)
	}
	return nil
}

// exchange is one request and its answer; the end of ctx breaks the connection's reads and writes off.
func (l *line) exchange(ctx context.Context, request, answer any) error {
	conn := l.conn
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer func() {
		if !stop() { // it has fired, or fires now: the connection is of no more use
			_ = l.Close()
		}
	}()
	text, err := json.Marshal(request)
	if err != nil {
		return err
	}
	if _, err := conn.Write(append(text, '\n')); err != nil {
		return err
	}
	got, err := l.in.ReadSlice('\n')
	if err != nil {
		return err
	}
	if err := json.Unmarshal(got, answer); err != nil {
		return fmt.Errorf("reply %q: %w", got, err)
	}
	return nil
}

// Close closes the connection.
func (l *line) Close() error {
	if l.conn == nil {
		return nil
	}
	err := l.conn.Close()
	l.conn = nil
	return err
}
