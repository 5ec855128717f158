//go:build integration

package main

import (
	"encoding/json"
	"net"
	"os"
	"testing"
	"time"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/internal/wait"
)

// TestUp starts servers for somebody else, reaches them, and presses Ctrl-C: they are gone.
func TestUp(t *testing.T) {
	for _, provider := range []string{"docker", "local"} {
		p := begin(t, "up", "redis", "--provider", provider, "--format", "json", "--set", "ttl=3s")
		var a backends.Access
		if !wait.Within(time.Minute, func() bool { return json.Unmarshal([]byte(p.stdout.String()), &a) == nil }) {
			t.Fatalf("%s: no endpoints within a minute\n%s", provider, p.stderr.String())
		}
		c, err := net.Dial("tcp", a.Addresses("client")[0])
		if err != nil {
			t.Errorf("%s: %v", provider, err)
		} else {
			_ = c.Close()
		}
		if a.TTL != 3*time.Second || a.Password == "" {
			t.Errorf("%s: %+v", provider, a)
		}
		if err := p.cmd.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		if code := p.wait(t); code != codeMet {
			t.Errorf("%s: exit code %d\n%s", provider, code, p.stderr.String())
		}
		gone(t, p)
	}
}
