//go:build integration

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/lockquake/lockquake/internal/cli"
)

// TestLeftoversOfAClientAreKilled: a client leaves children in sessions of their own, with an empty environment. They end
// with it. The run takes no longer, its verdict stands, and it reports what was killed.
func TestLeftoversOfAClientAreKilled(t *testing.T) {
	t.Parallel()
	dir, err := filepath.Abs("../../clients/python")
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"leaves-children", "holds-output"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			mark := filepath.Join(t.TempDir(), "mark")
			file := filepath.Join(filepath.Dir(mark), "leaves.yaml")
			text := fmt.Sprintf(`name: leaves
claim: A client leaves children behind.
backend:
  use: external
  ttl: 2s
  client: {run: [python3, testdata/toy_lock.py, %s, %q], dir: %q}
  start: {image: none, command: [redis-server, --port, "{client.port}", --bind, "{listen}", --save, ""], ports: {client: 6379}}
workload: {use: acquire-release, clients: 2, users: 1, hold: 1ms}
run: {for: 2s, settle: 1ms}
expect: {double_grants: ">=0", judged: ">=1"}
`, kind, mark, dir)
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			p := begin(t, "run", file, "--provider", "local", "-v")
			code := p.wait(t)
			said := regexp.MustCompile(`\s+`).ReplaceAllString(p.stdout.String()+p.stderr.String(), " ")
			if code != cli.CodeMet || !regexp.MustCompile(`when client-[12] ended, its leftover processes were killed: python[0-9.]* \(pid [0-9]+\)`).MatchString(said) {
				t.Errorf("exit code %d\n%s", code, said)
			}
			commands, err := filepath.Glob("/proc/[0-9]*/cmdline")
			if err != nil {
				t.Fatal(err)
			}
			for _, path := range commands {
				if b, err := os.ReadFile(path); err == nil && strings.Contains(string(b), mark) && !strings.Contains(string(b), "lockquake") {
					t.Errorf("it left behind %s: %q", path, b)
				}
			}
		})
	}
}

// TestHostileClientsLeaveNothing runs real client processes that break the protocol in each way. The run ends with one
// line that names the client and its error, has no verdict on the lock, and leaves nothing behind. Their lock asks no
// service. One client breaks no rule of the protocol: its library hangs in a release, so the run fails.
func TestHostileClientsLeaveNothing(t *testing.T) {
	t.Parallel()
	dir, err := filepath.Abs("../../clients/python")
	if err != nil {
		t.Fatal(err)
	}
	const never = cli.CodeMissing // the run does not start
	var tests patient
	for _, c := range []struct {
		kind string
		code int
		line string
	}{
		{"garbage", never, `client-[12]: control stream: .*"hello, I am a lock" at the start of a frame or batch`},
		{"silent", never, `client-[12]: no hello: not within 30s`},
		{"crashes", never, `client-[12]: OSError: no way to the service \(toy_lock.py, line [0-9]+\)`},
		{"never-ready", never, `client-[12]: no ready: not within 30s`},
		{"dies", cli.CodeInconclusive, `client-[12](: no ready: its control stream ended| ended (without a fault|without its final message))`},
		{"floods", cli.CodeInconclusive, `client-[12]: .*: log: more than 10000 unexpected frames`},
		{"floods-a-line", never, `client-[12]: .*: a frame of more than 16777216 bytes`},
		{"another-clock", never, `client-[12]: hello: its now is .* ahead of CLOCK_MONOTONIC`},
		{"unasked-grant", cli.CodeInconclusive, `client-[12]: .*event [0-9]+ \(acquire invoke of client-[12]/1\): there was no such order`},
		{"unasked-result", cli.CodeInconclusive, `client-[12]: .*: result: its id is 99, but no order waits for it`},
		{"answers-late", cli.CodeInconclusive, `A acquire: client-1: acquire: no result within 3s`},
		{"hangs", cli.CodeFailed, `deaf_waits 0: found 1`},
	} {
		tests.add(c.kind, func(t *testing.T) {
			load := "workload: {use: acquire-release, clients: 2, users: 1, hold: 1ms}\nrun: {for: 40s, settle: 1ms}"
			if c.kind == "answers-late" || c.kind == "hangs" {
				load = "workload: {}\nsteps: [{do: acquire, user: A, within: 1s}, {do: release, user: A, within: 1s}]\nrun: {settle: 1ms}"
			}
			file := filepath.Join(t.TempDir(), "hostile.yaml")
			text := fmt.Sprintf(`name: hostile
claim: A client breaks the protocol.
backend:
  use: external
  ttl: 2s
  client: {run: [python3, testdata/toy_lock.py, %s], dir: %q}
  start: {image: none, command: [redis-server, --port, "{client.port}", --bind, "{listen}", --save, ""], ports: {client: 6379}}
%s
expect: {double_grants: ">=0", judged: ">=1"}
`, c.kind, dir, load)
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			p := begin(t, "run", file, "--provider", "local")
			code := p.wait(t)
			said := p.stdout.String() + p.stderr.String()
			early := code == never && c.code == cli.CodeInconclusive // it broke the protocol before the other client was ready
			if code != c.code && !early || !regexp.MustCompile(c.line).MatchString(said) || strings.Contains(said, "PASS") {
				t.Errorf("exit code %d, want %d and a line like %s\n%s", code, c.code, c.line, said)
			}
			if left := leftovers(t, p.cmd.Process.Pid); len(left) > 0 {
				t.Errorf("it left behind %q", left)
			}
		})
	}
	tests.run(t)
}
