//go:build integration

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"golang.org/x/sys/unix"

	"github.com/lockquake/lockquake/internal/cli"
)

// stranger is a user of the machine unrelated to any run.
const stranger = 65533

// asStranger returns a command that runs as that user.
func asStranger(ctx context.Context, argv ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: stranger, Gid: stranger}}
	cmd.Dir = "/"
	return cmd
}

// asRoot skips a test that would prove nothing without root.
func asRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("becoming another user, and doing what only root may, needs root")
	}
}

// openDir makes a directory that every user of the machine can reach.
func openDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "lockquake-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestAloneCleanIsNotLed: processes of another user name files as their clock files, as a dead agent would have left
// them. clean neither writes to them nor hangs.
func TestAloneCleanIsNotLed(t *testing.T) {
	asRoot(t)
	dir, ours := filepath.Join(openDir(t), "theirs"), filepath.Join(t.TempDir(), "shadow")
	for _, err := range []error{os.Mkdir(dir, 0o755), os.WriteFile(ours, []byte("root's"), 0o600)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	dead := exec.Command("true")
	if err := dead.Run(); err != nil {
		t.Fatal(err)
	}
	var ns unix.Stat_t
	if err := unix.Stat("/proc/self/ns/pid", &ns); err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("# lockquake clock, by %d %d 1\n+60.000000000\n", dead.Process.Pid, uint32(ns.Ino))
	file, pipe := filepath.Join(dir, "f"), filepath.Join(dir, "pipe")
	for _, err := range []error{os.WriteFile(file, []byte(text), 0o644), os.Symlink(ours, file+".new"), unix.Mkfifo(pipe, 0o666)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, named := range []string{file, pipe} {
		cmd := asStranger(t.Context(), "sleep", "600")
		cmd.Env = []string{"FAKETIME_TIMESTAMP_FILE=" + named, "LOCKQUAKE_OWNER=run=x,pid=4000000,start=1,boot=,pidns=,host=,keep=false", "LOCKQUAKE_NODE=n"}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // only to end a hanging one
	defer cancel()
	out, err := exec.CommandContext(ctx, program(t), "clean").CombinedOutput()
	if ctx.Err() != nil {
		t.Errorf("clean waits for a pipe: %v\n%s", err, out)
	}
	if b, err := os.ReadFile(ours); string(b) != "root's" || err != nil {
		t.Errorf("a file of root's holds %q now, %v", b, err)
	}
	if b, err := os.ReadFile(file); string(b) != text || err != nil {
		t.Errorf("another user's file holds %q now, %v", b, err)
	}
}

// served is a node of a running run, seen by root from outside.
type served struct {
	node string
	pid  int
}

// runDirOf returns the directory of a supervisor's local run.
func runDirOf(t *testing.T, supervisor int) string {
	t.Helper()
	owners, err := filepath.Glob(filepath.Join(os.TempDir(), "lockquake-*", "*", "owner"))
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range owners {
		if b, err := os.ReadFile(o); err == nil && bytes.Contains(b, fmt.Appendf(nil, ",pid=%d,", supervisor)) {
			return filepath.Dir(o)
		}
	}
	t.Fatal("the run has no record")
	return ""
}

// serversOf lists the server processes of a supervisor: those in their data directories.
func serversOf(t *testing.T, supervisor int) []served {
	t.Helper()
	dir := runDirOf(t, supervisor)
	paths, err := filepath.Glob("/proc/[0-9]*/cwd")
	if err != nil {
		t.Fatal(err)
	}
	var out []served
	for _, path := range paths {
		at, err := os.Readlink(path)
		node, within := strings.CutPrefix(at, dir+"/")
		node, _, _ = strings.Cut(node, "/")
		if err != nil || !within || strings.HasPrefix(node, "client") {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil {
			out = append(out, served{node, pid})
		}
	}
	return out
}

// listens lists the listening TCP sockets of a network namespace, of one user or (-1) of all, from /proc/net/tcp and
// tcp6.
func listens(t *testing.T, proc string, user int) []netip.AddrPort {
	t.Helper()
	var out []netip.AddrPort
	for _, file := range []string{"tcp", "tcp6"} {
		b, err := os.ReadFile(proc + "/net/" + file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(b)) {
			f := strings.Fields(line)
			if len(f) < 8 || f[3] != "0A" || user >= 0 && f[7] != strconv.Itoa(user) {
				continue
			}
			at, port, _ := strings.Cut(f[1], ":")
			raw, err1 := hex.DecodeString(at)
			number, err2 := strconv.ParseUint(port, 16, 16)
			if err1 != nil || err2 != nil {
				t.Fatalf("%s: %q", file, line)
			}
			for i := 0; i+4 <= len(raw); i += 4 { // words in the machine's byte order
				binary.NativeEndian.PutUint32(raw[i:], binary.BigEndian.Uint32(raw[i:]))
			}
			addr, _ := netip.AddrFromSlice(raw)
			out = append(out, netip.AddrPortFrom(addr.Unmap(), uint16(number)))
		}
	}
	return out
}

// ownAddress returns the address of a process's network other than loopback.
func ownAddress(t *testing.T, pid int) string {
	t.Helper()
	out, err := exec.Command("nsenter", "-t", strconv.Itoa(pid), "-n", "hostname", "-I").Output()
	if err != nil || len(strings.Fields(string(out))) == 0 {
		t.Fatalf("the network of pid %d: %q, %v", pid, out, err)
	}
	return strings.Fields(string(out))[0]
}

// question is a request that a service answers with or without a password. A mere connection proves nothing: a gateway
// may accept those to any address.
type question struct {
	port   uint16
	asks   string // as an argument of printf
	bytes  int    // number of bytes of the answer to read
	answer string
}

var questions = map[string][]question{
	"postgres-healthy":  {{5432, `\0\0\0\010\004\322\026\057`, 1, "N"}}, // SSLRequest
	"sentinel-healthy":  {{6379, `PING\r\n`, 5, "PONG|NOAU"}, {26379, `PING\r\n`, 5, "PONG|NOAU"}},
	"etcd-healthy":      {{2379, `GET /version HTTP/1.0\r\n\r\n`, 2000, "etcdserver"}},
	"zookeeper-healthy": {{2181, "srvr", 2000, "Zookeeper version"}},
}

// knock sends a server the question, with a timeout.
func (q question) knock(addr string) []string {
	return []string{"bash", "-c", fmt.Sprintf("exec 3<>/dev/tcp/%s/%d && printf '%s' >&3 && timeout 8 head -c %d <&3 | grep -aqE '%s'", addr, q.port, q.asks, q.bytes, q.answer)}
}

// underLoad waits until the service serves and its users are working.
func underLoad(t *testing.T, p *process) {
	t.Helper()
	p.says(t, "load")
}

// finish ends a run by Ctrl-C.
func finish(t *testing.T, p *process) {
	t.Helper()
	if err := p.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if code := p.wait(t); code != cli.CodeInterrupted {
		t.Errorf("exit code %d\n%s", code, p.stderr.String())
	}
}

// TestServersOfRoot checks the servers of root's local runs: another user of the machine cannot reach them, they do
// not run as root, and their password appears only where it must.
func TestServersOfRoot(t *testing.T) {
	t.Parallel()
	asRoot(t)
	for _, scenario := range []string{"postgres-healthy", "sentinel-healthy", "etcd-healthy", "zookeeper-healthy"} {
		t.Run(scenario, func(t *testing.T) {
			if scenario != "postgres-healthy" {
				leftToAll(t, "Postgres, which runs programs for whoever may connect")
			}
			t.Parallel()
			p := begin(t, "run", scenario, "--provider", "local", "--set", "run.for=60s")
			underLoad(t, p)
			servers, ports, asked := serversOf(t, p.cmd.Process.Pid), 0, map[string]bool{}
			for _, s := range servers {
				status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.pid))
				if err != nil {
					continue // a server's process for a single connection that has ended
				}
				if regexp.MustCompile(`(?m)^[UG]id:.*\t0(\s|$)`).Match(status) {
					t.Errorf("%s is root:\n%s", s.node, status)
				}
				if asked[s.node] {
					continue
				}
				asked[s.node] = true
				for _, q := range questions[scenario] {
					if !slices.ContainsFunc(listens(t, fmt.Sprintf("/proc/%d", s.pid), -1), func(l netip.AddrPort) bool { return l.Port() == q.port }) {
						continue // the port of another server
					}
					ports++
					argv := q.knock(ownAddress(t, s.pid))
					if out, err := exec.Command("nsenter", append([]string{"-t", strconv.Itoa(s.pid), "-n"}, argv...)...).CombinedOutput(); err != nil {
						t.Errorf("%s does not answer in its own network, so this test shows nothing: %v %s", s.node, err, out)
					}
					if err := asStranger(t.Context(), append([]string{"timeout", "15"}, argv...)...).Run(); err == nil {
						t.Errorf("another user of the machine reaches port %d of %s", q.port, s.node)
					}
				}
			}
			if len(servers) == 0 || ports == 0 {
				t.Errorf("%d servers and %d ports were found: this test shows nothing", len(servers), ports)
			}
			if scenario == "etcd-healthy" || scenario == "zookeeper-healthy" { // no password: access to the port gives access to everything
				finish(t, p)
				return
			}
			secret := secretOf(t, p.cmd.Process.Pid)
			isSecret(t, p.cmd.Process.Pid, secret)
			finish(t, p)
			if len(secret) > 0 {
				nowhere(t, p.dir, secret)
			}
			gone(t, p)
		})
	}
}

// secretOf returns the password of a supervisor's run, from where root may read it.
func secretOf(t *testing.T, supervisor int) []byte {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(runDirOf(t, supervisor), "*.secret"))
	if err != nil || len(files) == 0 {
		return nil
	}
	text, err := os.ReadFile(files[0])
	info, failed := os.Stat(files[0])
	if err != nil || failed != nil || info.Mode() != 0o600 {
		t.Errorf("%s: %v, %v, %v", files[0], info, err, failed)
	}
	return regexp.MustCompile(`[A-Z2-7]{26}`).Find(text)
}

// isSecret searches for the password in everything about the run's processes that other users may see.
func isSecret(t *testing.T, supervisor int, secret []byte) {
	t.Helper()
	if len(secret) == 0 {
		t.Error("the servers have no password")
		return
	}
	paths, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		env, err := os.ReadFile(path)
		if err != nil || !bytes.Contains(env, fmt.Appendf(nil, ",pid=%d,", supervisor)) {
			continue
		}
		argv, err := os.ReadFile(filepath.Join(filepath.Dir(path), "cmdline"))
		if err == nil && bytes.Contains(append(argv, env...), secret) {
			t.Errorf("the password stands in the command line or the environment of %q", argv)
		}
	}
}

// nowhere demands that no file of a run directory contains the password.
func nowhere(t *testing.T, dir string, secret []byte) {
	t.Helper()
	files := 0
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		files++
		b, err := os.ReadFile(path)
		if bytes.Contains(b, secret) {
			t.Errorf("%s has the password", path)
		}
		return err
	})
	if err != nil || files < 5 {
		t.Errorf("%d files were looked at: %v", files, err)
	}
}

// TestServersOfAUser checks the servers of a user who cannot create namespaces: they listen on loopback only, and
// require a password.
func TestServersOfAUser(t *testing.T) {
	t.Parallel()
	asRoot(t)
	nobody, err := user.Lookup("nobody")
	if err != nil {
		t.Fatal(err)
	}
	id, err := strconv.Atoi(nobody.Uid)
	if err != nil {
		t.Fatal(err)
	}
	for _, scenario := range []string{"postgres-healthy", "sentinel-healthy", "rediscluster-healthy", "etcd-healthy", "zookeeper-healthy"} {
		t.Run(scenario, func(t *testing.T) {
			if scenario != "postgres-healthy" {
				leftToAll(t, "Postgres, which runs programs for whoever may connect")
			}
			t.Parallel()
			dir := openDir(t)
			bin := filepath.Join(dir, "lockquake")
			if out, err := exec.Command("cp", program(t), bin).CombinedOutput(); err != nil {
				t.Fatalf("%v %s", err, out)
			}
			if err := os.Chown(dir, id, id); err != nil {
				t.Fatal(err)
			}
			p := &process{cmd: exec.Command(bin, "run", scenario, "--provider", "local", "--set", "run.for=60s"), dir: dir}
			p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = dir, &p.stdout, &p.stderr
			p.cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "TMPDIR=" + dir, "HOME=" + dir}
			p.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(id), Gid: uint32(id)}}
			if err := p.cmd.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = p.cmd.Process.Kill() })
			underLoad(t, p)
			open := listens(t, "/proc/thread-self", id)
			asked := 0
			for _, l := range open {
				if !l.Addr().IsLoopback() {
					t.Errorf("a server listens on %v, for everybody who reaches this machine", l)
				}
				asked += refuses(t, scenario, l)
			}
			if len(open) == 0 || asked == 0 && !strings.HasPrefix(scenario, "etcd") && !strings.HasPrefix(scenario, "zookeeper") {
				t.Errorf("%d sockets, %d were asked: this test shows nothing", len(open), asked)
			}
			finish(t, p)
		})
	}
}

// refuses sends a Postgres or Redis server requests without a password, and returns the number of refusals.
func refuses(t *testing.T, scenario string, at netip.AddrPort) int {
	t.Helper()
	if strings.HasPrefix(scenario, "postgres") {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		conn, err := pgx.Connect(ctx, fmt.Sprintf("postgres://lockquake@%v/postgres?sslmode=disable", at))
		if err == nil {
			t.Errorf("the superuser of %v needs no password", at)
			_ = conn.Close(ctx)
		}
		var refused *pgconn.PgError
		if errors.As(err, &refused) || err != nil && strings.Contains(err.Error(), "password") {
			return 1
		}
		return 0 // it is the register
	}
	c, err := net.DialTimeout("tcp", at.String(), 5*time.Second)
	if err != nil {
		t.Error(err)
		return 0
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	_, _ = c.Write([]byte("INFO\r\n"))
	answer, _ := bufio.NewReader(c).ReadString('\n')
	if strings.HasPrefix(answer, "$") {
		t.Errorf("%v tells everybody about itself: %q", at, answer)
	}
	if strings.HasPrefix(answer, "-NOAUTH") {
		return 1
	}
	return 0
}
