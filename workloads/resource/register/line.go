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

// line is a connection to one of lockquake's processes, which answers each line of JSON by one, in order. It
// reconnects after an error of unknown outcome: a late answer must never be taken for the answer to another request.
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

// ask sends a request and reads the answer. An error that wraps lock.ErrNotSent means that it was certainly not sent;
// after any other error the outcome is unknown.
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

// exchange sends one request and reads its answer; the end of ctx interrupts the connection's reads and writes.
func (l *line) exchange(ctx context.Context, request, answer any) error {
	conn := l.conn
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer func() {
		if !stop() { // the interrupt has fired or is firing: the connection is useless
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
