// Package relay forwards connections that the supervisor cannot make itself: to addresses in the private networks of a
// swarm, and to the container engines of its other hosts.
//
// There are two ends. The hub is a container on the supervisor's own engine, attached to each of the run's networks. It
// dials on request, and all its connections share its standard streams. A relay is a task on every other host that
// forwards connections to the engine's socket there. Example: the supervisor starts redis-2 on host B. It opens a
// stream to the hub, asks it to dial B's relay, presents the key of the run, and from then on speaks the engine's own
// protocol:
//
//	supervisor == standard streams of the hub == hub -- overlay network -- relay on B -- /var/run/docker.sock of B
//
// Access to an engine's socket means root on that host. So a relay requires the key, which only the supervisor and the
// relays of one run have. The traffic between them is encrypted from end to end: neither the hub nor the network can
// read it.
package relay

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"time"

	"github.com/hashicorp/yamux"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

const (
	// dialTimeout bounds one connection of the hub.
	dialTimeout = 5 * time.Second
	// silence is how long data may stay unacknowledged by the other end. After it a host counts as cut off.
	silence = 15 * time.Second
	// window is how many bytes of one connection may be in flight: events of clients come in bursts.
	window = 1 << 20
	// tcpUserTimeout is TCP_USER_TIMEOUT, which x/sys defines on Linux alone. Hub and relay are containers, hence
	// Linux, but the program that contains them also builds for macOS.
	tcpUserTimeout = 18
)

// settings returns the configuration of both ends of the hub's streams.
func settings() *yamux.Config {
	c := yamux.DefaultConfig()
	c.EnableKeepAlive = false              // a container's streams exist as long as the container
	c.ConnectionWriteTimeout = time.Minute // a machine may stall
	c.MaxStreamWindowSize = window
	c.LogOutput = io.Discard
	return c
}

// dialer makes connections that end if the host vanishes.
var dialer = net.Dialer{
	Timeout:         dialTimeout,
	KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: silence / 3, Interval: silence / 3, Count: 2},
	Control: func(_, _ string, c syscall.RawConn) (err error) {
		if failed := c.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, tcpUserTimeout, int(silence.Milliseconds()))
		}); failed != nil {
			return failed
		}
		return err
	},
}

// standard makes the two streams of a process, or of its container, one connection.
type standard struct {
	io.Reader
	io.Writer
	io.Closer
}

// Hub dials for the supervisor on the other end of the two streams, until they end.
func Hub(ctx context.Context, in io.Reader, out io.Writer) error {
	session, err := yamux.Server(standard{in, out, io.NopCloser(in)}, settings())
	if err != nil {
		return fmt.Errorf("hub: %w", err)
	}
	defer func() { _ = session.Close() }()
	defer context.AfterFunc(ctx, func() { _ = session.Close() })()
	for {
		stream, err := session.AcceptStream()
		if err != nil {
			return nil //nolint:nilerr // the supervisor is gone, so the hub ends
		}
		go connect(ctx, stream)
	}
}

// connect dials the address at the beginning of a stream, answers "ok" or the error in one line, and forwards data both
// ways.
func connect(ctx context.Context, stream *yamux.Stream) {
	defer func() { _ = stream.Close() }()
	from := bufio.NewReader(stream)
	line, err := from.ReadString('\n')
	if err != nil {
		return
	}
	conn, err := dialer.DialContext(ctx, "tcp", strings.TrimSpace(line))
	if err != nil {
		_, _ = fmt.Fprintln(stream, strings.Join(strings.Fields(err.Error()), " "))
		return
	}
	if _, err := fmt.Fprintln(stream, "ok"); err != nil {
		_ = conn.Close()
		return
	}
	pass(conn, buffered{stream, from})
}

// buffered is a stream from which some data may have been read ahead.
type buffered struct {
	*yamux.Stream
	from *bufio.Reader
}

func (b buffered) Read(p []byte) (int, error) { return b.from.Read(p) }

// CloseWrite ends one direction: a closed stream still reads.
func (b buffered) CloseWrite() error { return b.Close() }

// duplex is a connection whose directions can be closed separately.
type duplex interface {
	net.Conn
	CloseWrite() error
}

// pass copies both ways until both directions have ended. It forwards the end of one direction; an error ends both.
func pass(a net.Conn, b duplex) {
	defer func() { _, _ = a.Close(), b.Close() }()
	var g errgroup.Group
	copying := func(to, from net.Conn) func() error {
		return func() error {
			_, err := io.Copy(to, from)
			if half, ok := to.(duplex); ok && err == nil {
				return half.CloseWrite()
			}
			_, _ = to.Close(), from.Close()
			return err
		}
	}
	g.Go(copying(a, b))
	g.Go(copying(b, a))
	_ = g.Wait() // both are closed, so their users see the error
}

// Client is the supervisor's end of a hub. It may be used by several goroutines.
type Client struct{ session *yamux.Session }

// Connect returns a client over the standard streams of a hub.
func Connect(in io.WriteCloser, out io.Reader) (*Client, error) {
	session, err := yamux.Client(standard{out, in, in}, settings())
	if err != nil {
		return nil, fmt.Errorf("connect to the hub: %w", err)
	}
	return &Client{session}, nil
}

// Close ends the hub and all its connections.
func (c *Client) Close() error { return c.session.Close() }

// Dial makes the hub connect to "host:port".
func (c *Client) Dial(ctx context.Context, address string) (net.Conn, error) {
	stream, err := c.session.OpenStream()
	if err != nil {
		return nil, fmt.Errorf("the hub is gone: %w", err)
	}
	defer context.AfterFunc(ctx, func() { _ = stream.SetDeadline(time.Unix(1, 0)) })()
	from := bufio.NewReader(stream)
	answer := ""
	if _, err = io.WriteString(stream, address+"\n"); err == nil {
		answer, err = from.ReadString('\n')
	}
	if answer = strings.TrimSpace(answer); err == nil && answer != "ok" {
		err = errors.New(answer)
	}
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		_ = stream.Close()
		return nil, fmt.Errorf("dial %s through the hub: %w", address, err)
	}
	return buffered{stream, from}, nil
}
