//go:build integration

package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/internal/cli"
	"github.com/lockquake/lockquake/internal/node"
	"github.com/lockquake/lockquake/internal/wait"
)

// inTurns is a round-robin load balancer.
func inTurns(t *testing.T, addresses ...string) string {
	t.Helper()
	var n atomic.Int64
	return serveEach(t, "127.0.0.1", func(c net.Conn) {
		passOn(t, c, addresses[int(n.Add(1))%len(addresses)], func(io.Reader) error { return nil })
	})
}

// at returns the access to servers at these addresses.
func at(password string, addresses ...string) backends.Access {
	a := backends.Access{Login: node.Login{Password: password}}
	for _, address := range addresses {
		a.Nodes = append(a.Nodes, backends.Endpoint{Addresses: map[string]string{"client": address}})
	}
	return a
}

func itself(_ *testing.T, _ *recorder, _ backends.Access, _, address string) string { return address }

// TestAttachToServersBehindOneAddress: if a lock's promise rests on one server, two servers behind one address are
// refused. So is one server at two of Redlock's addresses. Members of one cluster may share an address; the run says
// so.
func TestAttachToServersBehindOneAddress(t *testing.T) {
	t.Parallel()
	access, end := servers(t, "local", "redlock", []string{"nodes=3"})
	defer end()
	a := access.Addresses("client")
	one := attachedRun{backend: "redis", prefix: "bench:", watch: itself}
	one.refused(t, at(access.Password, inTurns(t, a[0], a[1])), lockOf(t, "redis", "setnx"), cli.CodeUsage, "2 servers behind 127.0.0.1:")
	redlock := attachedRun{backend: "redlock", prefix: "bench:", watch: itself}
	redlock.refused(t, at(access.Password, a[0], a[1], inTurns(t, a[0])), lockOf(t, "redlock", "redlock"), cli.CodeUsage, "are the same server")
	redlock.refused(t, at(access.Password, a[0], a[1], inTurns(t, a[1], a[2])), lockOf(t, "redlock", "redlock"), cli.CodeUsage, "2 servers behind 127.0.0.1:")

	quorum, over := servers(t, "local", "etcd", []string{"nodes=3"})
	defer over()
	etcd := attachedRun{backend: "etcd", prefix: "bench/", watch: itself}
	members := quorum.Addresses("client")
	p := etcd.begin(t, at(quorum.Password, inTurns(t, members[0], members[1])), lockOf(t, "etcd", "txn"), map[string][]string{"client": {inTurns(t, members[0], members[1])}})
	if code := p.wait(t); code != cli.CodeMet {
		t.Errorf("exit code %d\n%s\n%s", code, p.stdout.String(), p.stderr.String())
	}
	env, err := filepath.Glob(filepath.Join(p.dir, "runs", "*", "latest", "env.json"))
	if err != nil || len(env) != 1 {
		t.Fatalf("%q, %v", env, err)
	}
	if text, err := os.ReadFile(env[0]); err != nil || !strings.Contains(string(text), "attached_behind_127.0.0.1:") || !strings.Contains(string(text), "2 servers behind 127.0.0.1:") {
		t.Errorf("env.json does not tell of the two members behind one address (%v):\n%s", err, text)
	}
}

// TestAttachToAPooler: a pooler is refused before anything is written, in transaction mode and if its sessions lack
// the requested settings.
func TestAttachToAPooler(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("pgbouncer"); err != nil {
		t.Skipf("no pgbouncer on PATH: %v; .ci/setup pgbouncer installs it", err)
	}
	access, end := servers(t, "local", "postgres", nil)
	defer end()
	run := attachedRun{backend: "postgres", prefix: "bench_", watch: itself, yaml: "user: lockquake\n"}
	for _, mode := range []string{"transaction", "session"} {
		pooler := pgbouncer(t, access, "pool_mode = "+mode, "ignore_startup_parameters = extra_float_digits, search_path, options")
		run.refused(t, at(access.Password, pooler), lockOf(t, "postgres", "advisory"), cli.CodeUsage, "a pooler in between")
	}
	run.refused(t, at(access.Password, pgbouncer(t, access, "pool_mode = session")), lockOf(t, "postgres", "lease"), cli.CodeUsage, "unsupported startup parameter")
	run.run(t, access, lockOf(t, "postgres", "advisory"))
}

// pgbouncer starts a pooler in front of a server, and returns its address.
func pgbouncer(t *testing.T, access backends.Access, settings ...string) string {
	t.Helper()
	host, port, err := net.SplitHostPort(access.Addresses("client")[0])
	if err != nil {
		t.Fatal(err)
	}
	address := freeAddress(t)
	dir, err := os.MkdirTemp("", "pgbouncer")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	config := fmt.Sprintf("[databases]\n* = host=%s port=%s\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = %s\nunix_socket_dir =\nauth_type = plain\nauth_file = %s/users\n%s\n",
		host, port, portOf(address), dir, strings.Join(settings, "\n"))
	for name, text := range map[string]string{"pgbouncer.ini": config, "users": fmt.Sprintf("%q %q\n", "lockquake", access.Password)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("pgbouncer", filepath.Join(dir, "pgbouncer.ini"))
	cmd.SysProcAttr = asNobody(t)
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	if !wait.Within(20*time.Second, func() bool { return accepts(address) }) {
		t.Fatalf("nobody listens at %s\n%s", address, said.String())
	}
	return address
}

// asNobody returns the attributes with which root starts a program as nobody, because pgbouncer refuses to run as
// root.
func asNobody(t *testing.T) *syscall.SysProcAttr {
	t.Helper()
	if os.Getuid() != 0 {
		return nil
	}
	nobody, err := user.Lookup("nobody")
	if err != nil {
		t.Fatal(err)
	}
	uid, err := strconv.ParseUint(nobody.Uid, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
}

// TestEvictionsAreBlamed: others fill a Redis with eviction until it evicts the keys of held locks. The report has the
// number of evicted keys.
func TestEvictionsAreBlamed(t *testing.T) {
	t.Parallel()
	access, end := servers(t, "local", "redis", nil)
	defer end()
	client := redis.NewClient(&redis.Options{Addr: access.Addresses("client")[0], Password: access.Password, Protocol: 2})
	defer client.Close()
	for key, value := range map[string]string{"maxmemory-policy": "allkeys-random", "maxmemory": "4mb"} {
		if err := client.ConfigSet(t.Context(), key, value).Err(); err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	var filling sync.WaitGroup
	filling.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			_ = client.Set(ctx, fmt.Sprintf("other:%d", i%2000), strings.Repeat("x", 10_000), 0).Err() // as many as fit
		}
	})
	defer filling.Wait()
	defer stop()
	a := attachedRun{backend: "redis", prefix: "bench:", watch: itself, lasts: "3s"}
	p := a.begin(t, access, lockOf(t, "redis", "set-px-lua"), map[string][]string{"client": access.Addresses("client")})
	code := p.wait(t)
	verdict, err := filepath.Glob(filepath.Join(p.dir, "runs", "*", "latest", "verdict.json"))
	if err != nil || len(verdict) != 1 {
		t.Fatalf("exit code %d, %q, %v\n%s", code, verdict, err, p.stderr.String())
	}
	text, err := os.ReadFile(verdict[0])
	if err != nil || !strings.Contains(string(text), "keys were evicted (maxmemory 4194304, allkeys-random)") {
		t.Errorf("nobody blames the evictions (%v):\n%s", err, text)
	}
	t.Logf("exit code %d\n%s", code, p.stdout.String())
}
