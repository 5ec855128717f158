package clientcheck

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/wait"
	"github.com/lockquake/lockquake/internal/wire"
	"github.com/lockquake/lockquake/workloads"
	"github.com/lockquake/lockquake/workloads/resource"
	"github.com/lockquake/lockquake/workloads/resource/register"
)

// python runs a client in Python.
func python(t *testing.T, args ...string) func(context.Context, int) (Process, error) {
	t.Helper()
	path, err := exec.LookPath("python3")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("%v: run `.ci/setup python`", err)
		}
		t.Skipf("%v: install python3 to test clients/python", err)
	}
	return starting(t, path, args...)
}

// toyInGo builds a client in Go, and returns its path.
func toyInGo(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "toy")
	cmd := exec.Command("go", "build", "-o", path, "./testdata/toy")
	cmd.Dir, cmd.Env = "../../clients/go", append(os.Environ(), "GOPROXY=off", "GOWORK=off", "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return path
}

// starting starts a program for each check.
func starting(t *testing.T, path string, args ...string) func(context.Context, int) (Process, error) {
	return func(context.Context, int) (Process, error) {
		cmd := exec.Command(path, args...)
		in, err := cmd.StdinPipe()
		if err != nil {
			return Process{}, err
		}
		r, w, err := os.Pipe()
		if err != nil {
			return Process{}, err
		}
		cmd.Stdout = w
		var said strings.Builder
		cmd.Stderr = &said
		if err := cmd.Start(); err != nil {
			return Process{}, err
		}
		_ = w.Close()
		ended := make(chan struct{})
		go func() { _ = cmd.Wait(); close(ended) }()
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			<-ended
			_ = r.Close()
			if t.Failed() && said.Len() > 0 {
				t.Log(said.String())
			}
		})
		return Process{In: in, Out: r, Ended: ended}, nil
	}
}

// serveRegister starts a register and returns its address.
func serveRegister(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	_ = l.Close()
	toNode, in := io.Pipe()
	out, fromNode := io.Pipe()
	conn := wire.NewConn(out, in)
	t.Cleanup(func() { _ = conn.Close() })
	go func() {
		_ = register.Main(context.Background(), resource.Options{Listen: address, In: toNode, Out: fromNode, Version: "test"})
	}()
	if err := conn.Send(wire.Frame{Type: wire.TypeStart, Start: &wire.Start{Name: "register", Index: -1, Format: wire.FormatRecords, Locks: locks, Guard: "none"}}); err != nil {
		t.Fatal(err)
	}
	for {
		item, err := conn.Receive()
		if err != nil {
			t.Fatal(err)
		}
		if item.Frame != nil && item.Frame.Type == wire.TypeReady {
			break
		}
	}
	go func() {
		for {
			if _, err := conn.Receive(); err != nil {
				return
			}
		}
	}()
	return address
}

var locks = []string{"lock-0", "lock-1"}

// options are those of a test of a client.
func options(t *testing.T, start func(context.Context, int) (Process, error)) Options {
	t.Helper()
	address := serveRegister(t)
	const ttl = 2 * time.Second
	access, err := json.Marshal(map[string]any{"backend": "toy", "lock": "toy", "ttl_ns": int64(ttl), "nodes": []any{}, "run": "test"})
	if err != nil {
		t.Fatal(err)
	}
	return Options{Start: start, Frame: func(int) (*wire.Start, error) {
		return &wire.Start{
			Name: "client-1", Locks: locks, Seed: 1, Access: access, TTL: int64(ttl), Resource: &wire.Resource{Use: "register", Address: address, Guard: "none"},
		}, nil
	}}
}

const toy = "../../clients/python/testdata/toy_lock.py"

func TestLockquakePy(t *testing.T) {
	t.Parallel()
	right(t, python(t, toy))
}

func TestLockquakeInGo(t *testing.T) {
	t.Parallel()
	right(t, starting(t, toyInGo(t)))
}

// right wants nothing to be wrong with a client.
func right(t *testing.T, start func(context.Context, int) (Process, error)) {
	t.Helper()
	o := options(t, start)
	o.Tell = func(check string, wrong []string) {
		if len(wrong) > 0 {
			t.Errorf("%s: %q", check, wrong)
		}
	}
	if right, err := Run(t.Context(), o); !right || err != nil {
		t.Errorf("a right client: %v, %v", right, err)
	}
}

// Every workload that lockquake's own client has, the others have too.
func TestWorkloadsInEachLanguage(t *testing.T) {
	t.Parallel()
	small := map[string]string{
		"balance": `{"accounts":2}`, "spread": `{"locks":2,"pick":"zipf"}`, "booking": `{"seats":2}`, "inventory": `{"locks":2,"stock":5}`,
		"hold-renew": `{"hold":50000000,"touch":10000000}`, "stampede": `{"every":20000000}`, "guarded-set": `{"hold":1000000,"spread":true}`,
	}
	languages := map[string]func(context.Context, int) (Process, error){"go": starting(t, toyInGo(t)), "python": python(t, toy)}
	for _, k := range workloads.All() {
		lists := []string{cmp.Or(small[k.Name], "{}")}
		if k.Name == "acquire-release" {
			lists = append(lists, `{"rate":200}`, `{"rate":200,"arrivals":"uniform"}`)
		}
		for _, text := range lists {
			w, err := k.New(func(into any) error { return json.Unmarshal([]byte(text), into) })
			if err != nil {
				t.Fatal(err)
			}
			params, err := json.Marshal(w)
			if err != nil {
				t.Fatal(err)
			}
			for language, start := range languages {
				t.Run(k.Name+text+" in "+language, func(t *testing.T) {
					t.Parallel()
					wrong, err := options(t, start).one(t.Context(), 0, check{"workload", func(ctx context.Context, c *client) error {
						if err := c.begin(ctx, &wire.Workload{Use: k.Name, Users: 2, Total: 2, Params: params}); err != nil {
							return err
						}
						c.send(wire.Frame{Type: wire.TypeGo, Go: &wire.Go{Time: now()}})
						const some = 3
						if !wait.Within(patience, func() bool { return c.count(history.Release, history.Ok) >= some }) {
							c.wrong("it made fewer than %d cycles", some)
						}
						return c.stop(ctx)
					}})
					if err != nil || len(wrong) > 0 {
						t.Errorf("%q, %v", wrong, err)
					}
				})
			}
		}
	}
}

// Each of these breaks one rule, and is told by name what it breaks.
func TestWhatIsWrong(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ kind, check, want string }{
		{"garbage", "hello", `"hello, I am a lock" where a frame or a batch begins`},
		{"silent", "hello", "no hello within 1s"},
		{"nameless", "hello", "hello: process is left out"},
		{"another-clock", "hello", "from CLOCK_MONOTONIC, and by boot_id and time_ns of hello it is that clock"},
		{"never-excludes", "orders", "the lock excludes nobody"},
		{"no-valid", "orders", "its valid is 0 or left out"},
		{"late-valid", "workload", "and the TTL is 2s: it counts from when the request was sent"},
		{"endures", "input ends", "the process did not end within 2s"},
		{"miscounts", "orders", "done: recorded is "},
		{"any-version", "version", "version 99 of the protocol was answered by ready"},
		{"no-points", "points", "point no-such-point: no point within 10s"},
	} {
		t.Run(c.kind, func(t *testing.T) {
			t.Parallel()
			o := options(t, python(t, toy, c.kind))
			if c.kind == "silent" {
				o.waits = time.Second
			}
			i := slices.IndexFunc(checks, func(k check) bool { return k.name == c.check })
			wrong, err := o.one(t.Context(), i, checks[i])
			if err != nil || !slices.ContainsFunc(wrong, func(line string) bool { return strings.Contains(line, c.want) }) {
				t.Errorf("%s: %q, %v, want %q", c.check, wrong, err, c.want)
			}
		})
	}
}

// The client in Go does not hide what is wrong with a lock.
func TestWhatIsWrongInGo(t *testing.T) {
	t.Parallel()
	toy := toyInGo(t)
	for _, c := range []struct{ kind, check, want string }{
		{"never-excludes", "orders", "the lock excludes nobody"},
		{"no-valid", "orders", "its valid is 0 or left out"},
		{"late-valid", "workload", "and the TTL is 2s: it counts from when the request was sent"},
		{"no-points", "points", "point no-such-point: no point within 10s"},
	} {
		t.Run(c.kind, func(t *testing.T) {
			t.Parallel()
			o := options(t, starting(t, toy, c.kind))
			i := slices.IndexFunc(checks, func(k check) bool { return k.name == c.check })
			wrong, err := o.one(t.Context(), i, checks[i])
			if err != nil || !slices.ContainsFunc(wrong, func(line string) bool { return strings.Contains(line, c.want) }) {
				t.Errorf("%s: %q, %v, want %q", c.check, wrong, err, c.want)
			}
		})
	}
}

// What keeps a check from being made is no fault of the client.
func TestAClientThatCannotBeStarted(t *testing.T) {
	t.Parallel()
	broken := errors.New("no such program")
	_, err := Run(t.Context(), Options{
		Start: func(context.Context, int) (Process, error) { return Process{}, broken },
		Frame: func(int) (*wire.Start, error) { return &wire.Start{Name: "client-1", Locks: locks}, nil },
		Tell:  func(string, []string) {},
	})
	if !errors.Is(err, broken) {
		t.Errorf("it ends with %v", err)
	}
}
