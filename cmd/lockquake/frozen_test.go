//go:build integration

package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/lockquake/lockquake/internal/agent"
)

// frosty freezes a server for as long as the run lasts.
const frosty = `
name: frosty
claim: A server is frozen, and stays so until somebody heals it.
backend: {use: etcd}
workload: {use: counter, clients: 2, hold: 5ms, resource: {use: register, guard: none}}
chaos:
  - {use: freeze, on: etcd-1, at: 500ms}
run: {for: 60s, seed: 1}
expect: {judged: ">=1"}
`

// childrenOf finds the processes of one supervisor by their nodes' names.
func childrenOf(t *testing.T, supervisor int) map[string]agent.Process {
	t.Helper()
	mark, out := fmt.Appendf(nil, ",pid=%d,", supervisor), map[string]agent.Process{}
	files, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		env, err := os.ReadFile(f)
		_, rest, named := bytes.Cut(env, []byte("LOCKQUAKE_NODE="))
		if err != nil || !named || !bytes.Contains(env, mark) {
			continue
		}
		name, _, _ := strings.Cut(string(rest), "\x00")
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(f)))
		if p, err := agent.Find(pid); err == nil {
			out[name] = p
		}
	}
	return out
}

// TestFrozenAndForsaken kills the agent that would thaw a server, and then the supervisor that would tell it to: clean thaws, or the
// server could not even die.
func TestFrozenAndForsaken(t *testing.T) {
	if err := agent.FreezerSupported(); err != nil {
		t.Skip(err)
	}
	p := begin(t, "run", scenarioFile(t, frosty), "--provider", "local")
	awaitPause(t, p)
	nodes := childrenOf(t, p.cmd.Process.Pid)
	server, ours := nodes["etcd-1"]
	if _, there := nodes["agent"]; !ours || !there {
		t.Fatalf("the run has %v", nodes)
	}
	for _, victim := range []int{nodes["agent"].PID, p.cmd.Process.Pid} {
		if err := syscall.Kill(victim, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	p.wait(t)
	if f, err := server.Frozen(); err != nil || !f.Frozen {
		t.Fatalf("it is not frozen: %+v, %v; this test shows nothing", f, err)
	}
	t.Logf("clean: %s", clean(t))
	gone(t, p)
	if f, err := server.Frozen(); err != nil || !f.Gone {
		t.Errorf("it is still there: %+v, %v", f, err)
	}
}
