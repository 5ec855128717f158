package relay_test

import (
	"context"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lockquake/lockquake/internal/relay"
	"github.com/lockquake/lockquake/internal/wait"
)

// patience ends a test that hangs.
const patience = time.Minute

// hub starts a hub and connects to it.
func hub(t *testing.T) *relay.Client {
	t.Helper()
	toHub, in := io.Pipe()
	out, fromHub := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- relay.Hub(t.Context(), toHub, fromHub)
		_ = fromHub.Close()
	}()
	c, err := relay.Connect(in, out)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Close()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return c
}

// echo listens and returns what it received, in capitals, once it has received all of it.
func echo(t *testing.T, network, address string) string {
	t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				heard, _ := io.ReadAll(conn)
				_, _ = io.WriteString(conn, strings.ToUpper(string(heard)))
				_ = conn.Close()
			}()
		}
	}()
	return l.Addr().String()
}

// say sends a text, ends its direction, and returns the answer.
func say(t *testing.T, conn net.Conn, text string) string {
	t.Helper()
	defer conn.Close()
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	if err := conn.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(patience))
	answer, err := io.ReadAll(conn)
	if err != nil {
		t.Fatal(err)
	}
	return string(answer)
}

func TestTheHubDialsAndEndsOneDirection(t *testing.T) {
	c := hub(t)
	at := echo(t, "tcp", "127.0.0.1:0")
	long := strings.Repeat("lock", 1<<20) // more than all windows together
	for _, text := range []string{"one", "another", long} {
		conn, err := c.Dial(t.Context(), at)
		if err != nil {
			t.Fatal(err)
		}
		if got := say(t, conn, text); got != strings.ToUpper(text) {
			t.Errorf("%d bytes came back for %d", len(got), len(text))
		}
	}
	if _, err := c.Dial(t.Context(), "127.0.0.1:1"); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("an address where nobody listens: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Dial(ctx, at); err == nil {
		t.Error("dialled although it was given up")
	}
}

func TestARelayTakesOnlyItsOwnKey(t *testing.T) {
	c := hub(t)
	socket := filepath.Join(t.TempDir(), "engine.sock")
	echo(t, "unix", socket)
	key, err := relay.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	text, err := key.Text()
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := relay.ParseKey(text)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := l.Addr().String()
	_ = l.Close()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- relay.Serve(ctx, theirs, at, socket) }()
	var conn net.Conn
	wait.Until(t, patience, "it listens", func() bool { conn, err = c.DialEngine(t.Context(), key, at); return err == nil })
	if got := say(t, conn, "version"); got != "VERSION" {
		t.Errorf("the engine answers %q", got)
	}

	other, err := relay.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	if conn, err := c.DialEngine(t.Context(), other, at); err == nil {
		// With TLS 1.3 a client learns only on a read that its certificate was refused.
		_ = conn.SetReadDeadline(time.Now().Add(patience))
		if n, err := conn.Read(make([]byte, 1)); err == nil {
			t.Errorf("another run's key read %d bytes of the engine", n)
		}
		_ = conn.Close()
	}
	plain, err := c.Dial(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	if got := say(t, plain, "GET /containers/json HTTP/1.1\r\n\r\n"); strings.Contains(got, "GET /CONTAINERS") {
		t.Errorf("without a key the engine answers %q", got)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestAKeyThatIsNone(t *testing.T) {
	for _, text := range []string{"", ".", "AAAA", "AAAA.AAAA", "%.%"} {
		if _, err := relay.ParseKey(text); err == nil {
			t.Errorf("%q was taken for a key", text)
		}
	}
}
