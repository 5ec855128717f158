//go:build integration

package links

import (
	"errors"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lockquake/lockquake/chaos/links"
	"github.com/lockquake/lockquake/internal/agent"
	"github.com/lockquake/lockquake/internal/agent/agenttest"
)

// TestConnectionsAreReset makes connections of sockets for IPv4 and for IPv6, as Java's, and resets one of them.
func TestConnectionsAreReset(t *testing.T) {
	if err := canReset(); err != nil {
		t.Fatal(err)
	}
	c, _ := agenttest.Serve(t, Mechanism())
	x, y := cabledPair(t, c)
	for name, network := range map[string]string{"IPv4": "tcp4", "IPv6": "tcp"} {
		t.Run(name, func(t *testing.T) {
			var one, other, kept, keptOther net.Conn
			var listener net.Listener
			err := y.space.do(func() (err error) {
				listener, err = net.Listen(network, map[string]string{"tcp4": y.address + ":0", "tcp": "[::]:0"}[network])
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = listener.Close() }()
			port := listener.Addr().(*net.TCPAddr).Port
			dial := func() (one, other net.Conn) {
				err := x.space.do(func() (err error) {
					one, err = net.DialTCP("tcp4", nil, &net.TCPAddr{IP: net.ParseIP(y.address), Port: port})
					return err
				})
				if err == nil {
					other, err = listener.Accept()
				}
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _, _ = one.Close(), other.Close() })
				return one, other
			}
			one, other = dial()
			kept, keptOther = dial()
			list := func(at cabled, r links.Rule) (out []links.Connection) {
				err := c.Order(t.Context(), agent.Order{Do: links.DoConnections, Process: at.Process, Args: links.ConnectionsArgs{With: []links.Rule{r}}}, &out)
				if err != nil {
					t.Fatal(err)
				}
				return out
			}
			own := uint16(one.LocalAddr().(*net.TCPAddr).Port)
			atY := links.Rule{Peer: x.address, Port: uint16(port)}
			if all := list(y, atY); len(all) != 2 {
				t.Fatalf("the kernel lists %+v", all)
			}
			if none := list(y, links.Rule{Peer: "10.99.0.7"}); len(none) != 0 {
				t.Errorf("of another peer: %+v", none)
			}
			atY.PeerPort = own
			those := list(y, atY)
			if len(those) != 1 || those[0].PeerPort != own {
				t.Fatalf("with a peer's port: %+v", those)
			}
			for want := 1; want >= 0; want-- { // again, nothing is left to end
				var ended links.Ended
				if err := c.Order(t.Context(), agent.Order{Do: links.DoReset, Process: y.Process, Args: those}, &ended); err != nil || ended != (links.Ended{Reset: want}) {
					t.Fatalf("%+v, want %d reset: %v", ended, want, err)
				}
			}
			for _, end := range []net.Conn{one, other} {
				_ = end.SetReadDeadline(time.Now().Add(10 * time.Second))
				if _, err := end.Read(make([]byte, 1)); !errors.Is(err, unix.ECONNRESET) {
					t.Errorf("%v: %v", end.LocalAddr(), err)
				}
			}
			if left := list(x, links.Rule{Peer: y.address, PeerPort: uint16(port)}); len(left) != 1 {
				t.Errorf("the other end lists %+v", left)
			}
			go func() { _, _ = kept.Write([]byte("x")) }()
			_ = keptOther.SetReadDeadline(time.Now().Add(10 * time.Second))
			if _, err := keptOther.Read(make([]byte, 1)); err != nil {
				t.Errorf("the connection that was not meant: %v", err)
			}
		})
	}
}
