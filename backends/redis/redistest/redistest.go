// Package redistest has what tests of both sides of Redis need: a scripted server.
package redistest

import (
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/lockquake/lockquake/backends/conformance"
)

// Play starts a server that answers each packet with answer's result; "" hangs up. It returns the server's address.
func Play(t *testing.T, answer func(text, self string) string) string {
	t.Helper()
	return conformance.Listen(t, func(c net.Conn) {
		buf := make([]byte, 4096)
		for {
			n, err := c.Read(buf)
			if err != nil {
				return
			}
			reply := answer(strings.ToUpper(string(buf[:n])), c.LocalAddr().String())
			if reply == "" {
				return
			}
			_, _ = fmt.Fprint(c, reply)
		}
	})
}

// Slots returns the answer to CLUSTER SLOTS of a cluster of one.
func Slots(address string) string {
	host, port, _ := net.SplitHostPort(address)
	return fmt.Sprintf("*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$%d\r\n%s\r\n:%s\r\n", len(host), host, port)
}
