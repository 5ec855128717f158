//go:build integration

package main

import (
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/internal/cli"
	"github.com/lockquake/lockquake/internal/wait"
)

// TestUpUntilEOF: a program starts servers, which stop when it closes its end of their standard input.
func TestUpUntilEOF(t *testing.T) {
	t.Parallel()
	p := &process{cmd: exec.Command(program(t), "up", "redis", "--provider", "local", "--format", "json", "--until-eof"), dir: t.TempDir()}
	p.cmd.Dir, p.cmd.Stderr = p.dir, &p.stderr
	in, err := p.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var a backends.Access
	if err := json.NewDecoder(out).Decode(&a); err != nil || len(a.Nodes) != 1 {
		t.Errorf("%+v, %v\n%s", a, err, p.stderr.String())
	}
	if err := in.Close(); err != nil {
		t.Error(err)
	}
	if code := p.wait(t); code != cli.CodeMet {
		t.Errorf("exit code %d\n%s", code, p.stderr.String())
	}
	gone(t, p)
}

// TestUp starts servers for external clients, reaches them, and sends Ctrl-C: they are gone.
func TestUp(t *testing.T) {
	t.Parallel()
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
		if code := p.wait(t); code != cli.CodeMet {
			t.Errorf("%s: exit code %d\n%s", provider, code, p.stderr.String())
		}
		gone(t, p)
	}
}
