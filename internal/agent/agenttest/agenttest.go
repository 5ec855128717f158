// Package agenttest serves agents in tests, and starts the processes that they act on.
package agenttest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/lockquake/lockquake/internal/agent"
	"github.com/lockquake/lockquake/internal/agent/proc"
	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/internal/node"
	"github.com/lockquake/lockquake/internal/wait"
)

// Serve serves an agent from a goroutine and returns the supervisor's end and a channel with Main's result.
func Serve(t *testing.T, m ...agent.Mechanism) (*agent.Client, <-chan error) {
	t.Helper()
	if err := proc.Supported(); err != nil {
		t.Skip(err)
	}
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := agent.Main(t.Context(), inR, outW, m)
		_ = outW.Close()
		ended <- err
	}()
	c, err := agent.Connect(t.Context(), inW, outR)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c, ended
}

// Sleeper starts a process that does nothing.
func Sleeper(t *testing.T) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd
}

// Until polls the state of a process, without the agent.
func Until(t *testing.T, p proc.Process, what string, ok func(node.State) bool) {
	t.Helper()
	var last node.State
	if !wait.Within(Patience, func() bool {
		var err error
		if last, err = p.Inspect(); err != nil {
			t.Fatal(err)
		}
		return ok(last)
	}) {
		t.Fatalf("not %s: %+v", what, last)
	}
}

// Patience ends a test that hangs.
const Patience = time.Minute

// Ended closes an agent's control stream and checks that the agent has healed everything and ended within 2 s. The
// heals in tests take far less, so that a busy machine does not exceed the limit.
func Ended(t *testing.T, c *agent.Client, ended <-chan error) {
	t.Helper()
	begin := clock.Now()
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	took := time.Duration(clock.Now() - begin)
	t.Logf("healed and ended in %v", took)
	if took > 2*time.Second {
		t.Errorf("healed and ended in %v, and 2 s are promised", took)
	}
}

// Stopped reports whether all threads of a process are stopped.
func Stopped(s node.State) bool { return s.PID != 0 && len(s.Threads) == 1 && s.Threads["T"] > 0 }

// Running reports whether no thread of a process is stopped or has ended.
func Running(s node.State) bool { return s.PID != 0 && s.Threads["T"] == 0 && s.Threads["Z"] == 0 }

// Load returns the machine's load average over a minute, for the output of benchmarks.
func Load() string {
	b, _ := os.ReadFile("/proc/loadavg")
	one, _, _ := strings.Cut(string(b), " ")
	return one
}

// ChildEnv is the environment variable that makes a test binary the program of Child.
const ChildEnv = "LOCKQUAKE_AGENT_TEST_CHILD"

// Child starts the test binary as another program: "agent", or a path for one that syncs a file there, and has several
// threads.
func Child(t *testing.T, value string) (*exec.Cmd, io.WriteCloser, io.Reader) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), ChildEnv+"="+value)
	in, out := Start(t, cmd)
	return cmd, in, out
}

// Start starts a program and returns its standard streams. It is killed when the test ends.
func Start(t *testing.T, cmd *exec.Cmd) (io.WriteCloser, io.Reader) {
	t.Helper()
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return in, out
}

// OtherClock starts a program that is an agent, with a clock that is two hours ahead, as on another host.
func OtherClock(t *testing.T, program ...string) (*agent.Client, *exec.Cmd) {
	t.Helper()
	_, missing := exec.LookPath("unshare")
	if _, err := os.Stat("/proc/self/ns/time"); err != nil || missing != nil || os.Geteuid() != 0 {
		t.Skipf("another clock needs root, unshare and a kernel with time namespaces: %v", errors.Join(err, missing))
	}
	cmd := exec.Command("unshare", append([]string{"--time", "--monotonic", "7200"}, program...)...)
	cmd.Env = append(os.Environ(), ChildEnv+"=agent")
	in, out := Start(t, cmd)
	c, err := agent.Connect(t.Context(), in, out)
	if err != nil {
		t.Fatal(err)
	}
	return c, cmd
}

// BeChild is called at the start of a test binary that uses Child. In a child it does not return.
func BeChild(m ...agent.Mechanism) {
	switch os.Getenv(ChildEnv) {
	case "":
		return
	case "agent":
		if err := agent.Main(context.Background(), os.Stdin, os.Stdout, m); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	default:
		syncs(os.Getenv(ChildEnv))
	}
	os.Exit(0)
}

// syncs prints a line with the duration of each sync.
func syncs(path string) {
	f, err := os.Create(path)
	if err != nil {
		panic(err)
	}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		begin := clock.Now()
		_, err := f.WriteString("x")
		if err == nil {
			err = f.Sync()
		}
		if err != nil {
			panic(err)
		}
		if _, err := fmt.Fprintln(os.Stdout, clock.Now()-begin); err != nil {
			panic(err)
		}
	}
}
