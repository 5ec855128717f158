package clientcheck

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/wait"
	"github.com/lockquake/lockquake/internal/wire"
	"github.com/lockquake/lockquake/workloads"
	"github.com/lockquake/lockquake/workloads/resource"
	"github.com/lockquake/lockquake/workloads/resource/register"
)

// find finds a program needed for clients in another language.
func find(t *testing.T, name, language string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("%v: run `.ci/setup %s`", err, language)
		}
		t.Skipf("%v: install %s to test clients/%s", err, name, language)
	}
	return path
}

// python runs a client in Python.
func python(t *testing.T, args ...string) func(context.Context, int) (Process, error) {
	t.Helper()
	return running(t, append([]string{find(t, "python3", "python"), toyPython}, args...)...)
}

// javascript runs a client in JavaScript.
func javascript(t *testing.T, args ...string) func(context.Context, int) (Process, error) {
	t.Helper()
	return running(t, append([]string{find(t, "node", "node"), toyNode}, args...)...)
}

// java runs a client in Java.
func java(t *testing.T, args ...string) func(context.Context, int) (Process, error) {
	t.Helper()
	compiler := find(t, "javac", "java")
	compile.Do(func() {
		compiled, errCompile = os.MkdirTemp("", "lockquake-java-")
		if errCompile == nil {
			said, err := exec.Command(compiler, "-Werror", "-Xlint:all", "-d", compiled, "../../clients/java/Lockquake.java", toyJava).CombinedOutput()
			if errCompile = err; err != nil {
				errCompile = fmt.Errorf("%w: %s", err, said)
			}
		}
	})
	if errCompile != nil {
		t.Fatal(errCompile)
	}
	return running(t, append([]string{find(t, "java", "java"), "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", compiled, "ToyLock"}, args...)...)
}

var (
	compile, build       sync.Once
	compiled, built      string // the folders of Java's classes, and of the Go program
	errCompile, errBuild error
)

func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "8") // by default: the tests wait for a timeout more than for a processor
	code := m.Run()
	for _, dir := range []string{compiled, built} {
		if dir != "" {
			_ = os.RemoveAll(dir)
		}
	}
	os.Exit(code)
}

// golang runs a client in Go.
func golang(t *testing.T, args ...string) func(context.Context, int) (Process, error) {
	t.Helper()
	build.Do(func() {
		if built, errBuild = os.MkdirTemp("", "lockquake-go-"); errBuild != nil {
			return
		}
		cmd := exec.Command("go", "build", "-o", filepath.Join(built, "toy"), "./testdata/toy")
		cmd.Dir, cmd.Env = "../../clients/go", append(os.Environ(), "GOPROXY=off", "GOWORK=off", "CGO_ENABLED=0")
		if said, err := cmd.CombinedOutput(); err != nil {
			errBuild = fmt.Errorf("%w: %s", err, said)
		}
	})
	if errBuild != nil {
		t.Fatal(errBuild)
	}
	return running(t, append([]string{filepath.Join(built, "toy")}, args...)...)
}

// running runs a client.
func running(t *testing.T, argv ...string) func(context.Context, int) (Process, error) {
	t.Helper()
	return func(context.Context, int) (Process, error) {
		cmd := exec.Command(argv[0], argv[1:]...)
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
func serveRegister(t *testing.T) (address string) {
	t.Helper()
	toNode, in := io.Pipe()
	out, fromNode := io.Pipe()
	conn := wire.NewConn(out, in)
	t.Cleanup(func() { _ = conn.Close() })
	ended := make(chan error, 1)
	go func() {
		ended <- register.Main(context.Background(), resource.Options{Listen: "127.0.0.1:0", In: toNode, Out: fromNode, Version: "test"})
	}()
	if err := conn.Send(wire.Frame{Type: wire.TypeStart, Start: &wire.Start{Name: "register", Index: -1, Format: wire.FormatRecords, Locks: locks, Guard: "none"}}); err != nil {
		t.Fatal(err)
	}
	for {
		item, err := conn.Receive()
		if errors.Is(err, io.EOF) {
			t.Fatalf("the register ended: %v", <-ended)
		}
		if err != nil {
			t.Fatal(err)
		}
		if item.Frame != nil && item.Frame.Type == wire.TypeReady {
			address = item.Frame.Ready.Address
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

// locks are names that a client must quote.
var locks = []string{"lock \"0\"\n", `lock\1 ü 🔒`}

// options returns the options for testing a client.
func options(t *testing.T, start func(context.Context, int) (Process, error)) Options {
	t.Helper()
	address := serveRegister(t)
	const ttl = 30 * time.Second
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

const (
	toyPython = "../../clients/python/testdata/toy_lock.py"
	toyJava   = "../../clients/java/testdata/ToyLock.java"
	toyNode   = "../../clients/node/testdata/toy_lock.mjs"
)

// toys are correct clients in each language that ships; the argument breaks a rule.
var toys = map[string]func(*testing.T, ...string) func(context.Context, int) (Process, error){
	"python": python, "java": java, "go": golang, "node": javascript,
}

func TestClientsThatShip(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ language, kind string }{
		{"go", ""},
		{"go", "permits"},
		{"go", "reenters"},
		{"java", ""},
		{"java", "by-renew"},
		{"java", "permits"},
		{"java", "reenters"},
		{"node", ""},
		{"node", "by-renew"},
		{"node", "permits"},
		{"node", "reenters"},
		{"python", ""},
		{"python", "by-renew"},
		{"python", "permits"},
		{"python", "reenters"},
	} {
		t.Run(c.language+" "+c.kind, func(t *testing.T) {
			t.Parallel()
			o := options(t, toys[c.language](t, c.kind))
			told := 0
			o.Tell = func(check string, wrong []string) {
				told++
				if len(wrong) > 0 {
					t.Errorf("%s: %q", check, wrong)
				}
			}
			if right, err := Run(t.Context(), o); !right || err != nil || told < Count()-1 || (told == Count()) != (c.kind == "permits") {
				t.Errorf("a right client: %v, %v, %d checks", right, err, told)
			}
		})
	}
}

// TestBoundsForHungUsers: a client in each language declares the same bound, and one that declares none has none.
func TestBoundsForHungUsers(t *testing.T) {
	t.Parallel()
	for language, toy := range toys {
		for kind, want := range map[string]*wire.Bound{"bounded": {TTLs: 3, Plus: int64(500 * time.Millisecond)}, "renews": nil} {
			t.Run(language+" "+kind, func(t *testing.T) {
				t.Parallel()
				o := options(t, toy(t, kind))
				start, err := o.Frame(0)
				if err != nil {
					t.Fatal(err)
				}
				p, err := o.Start(t.Context(), 0)
				if err != nil {
					t.Fatal(err)
				}
				c := newClient(p, start, patience)
				defer c.end()
				h, err := c.greet(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if !reflect.DeepEqual(h.Hung, want) {
					t.Errorf("hung is %+v, want %+v", h.Hung, want)
				}
			})
		}
	}
}

// A user's own client should be small. Anything above this size belongs into the file that carries the protocol,
// which every author uses.
func TestClientsThatShipAreSmall(t *testing.T) {
	const most = 70
	var files []string
	for _, pattern := range []string{"python/*.py", "java/*.java", "go/*/*.go", "node/*.mjs"} {
		found, err := filepath.Glob(filepath.Join("../../clients", pattern))
		if err != nil || len(found) < 2 {
			t.Fatalf("%s: %q, %v", pattern, found, err)
		}
		files = append(files, found...)
	}
	for _, f := range files {
		name := strings.ToLower(strings.TrimSuffix(filepath.Base(f), filepath.Ext(f)))
		if name == "lockquake" || name == "locktest" { // they are not clients
			continue
		}
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if n := bytes.Count(text, []byte("\n")); n > most {
			t.Errorf("%s has %d lines, and at most %d are wanted", f, n, most)
		}
	}
}

// A dependency of the package would raise the version of a library under test.
func TestTheGoPackageRequiresNothing(t *testing.T) {
	text, err := os.ReadFile("../../clients/go/go.mod")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat("../../clients/go/go.sum"); err == nil || bytes.Contains(text, []byte("require")) {
		t.Errorf("clients/go requires other modules:\n%s", text)
	}
}

// They have every workload that lockquake's own client has.
func TestWorkloadsOfClientsThatShip(t *testing.T) {
	t.Parallel()
	small := map[string]string{
		"balance": `{"accounts":2}`, "spread": `{"locks":2,"pick":"zipf","skew":1.5}`, "booking": `{"seats":2}`, "inventory": `{"locks":2,"stock":5}`,
		"hold-renew": `{"hold":50000000,"touch":10000000}`, "stampede": `{"every":20000000}`, "guarded-set": `{"hold":1000000,"spread":true}`,
	}
	for _, k := range workloads.All() {
		lists := []string{cmp.Or(small[k.Name], "{}")}
		if k.Name == "acquire-release" {
			lists = append(lists, `{"rate":200}`, `{"rate":200,"arrivals":"uniform"}`, `{"own_locks":true}`)
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
			for language, toy := range toys {
				t.Run(k.Name+text+" in "+language, func(t *testing.T) {
					t.Parallel()
					c := work(t, toy(t), wire.Workload{Use: k.Name, Params: params}, func(st *wire.Start) { st.Seed, st.Renew, st.Check = math.MaxUint64, true, "validity" })
					if found := c.found(); len(found) > 0 || surprising(c.done.Errors) {
						t.Errorf("%q, errors %v", found, c.done.Errors)
					}
				})
			}
		}
	}
}

// A user whose library reported the loss does not write.
func TestLossReportedByTheLibrary(t *testing.T) {
	t.Parallel()
	for language, toy := range toys {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			w := wire.Workload{Use: "counter", Params: []byte(`{"locks":1}`)}
			c := work(t, toy(t, "loses"), w, func(st *wire.Start) { st.Check = "signal" })
			found, lost, written := c.found(), c.record.count(history.Lost, history.Info), c.record.count(history.Write, history.Invoke)
			if len(found) > 0 || surprising(c.done.Errors) || lost != len(c.record.granted()) || written > 0 {
				t.Errorf("%d grants, %d lost, %d writes, %q, errors %v", len(c.record.granted()), lost, written, found, c.done.Errors)
			}
		})
	}
}

// A renewal that the library made by itself extends the validity of the grant.
func TestRenewalReportedByTheLibrary(t *testing.T) {
	t.Parallel()
	for language, toy := range toys {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			w := wire.Workload{Use: "counter", Params: []byte(`{"locks":1}`)}
			c := work(t, toy(t, "renews"), w, func(*wire.Start) {})
			found, renewed := c.found(), c.record.count(history.Renewed, history.Info)
			if len(found) > 0 || surprising(c.done.Errors) || renewed < len(c.record.granted()) || renewed == 0 {
				t.Errorf("%d grants, %d renewed, %q, errors %v", len(c.record.granted()), renewed, found, c.done.Errors)
			}
		})
	}
}

// All users of a client in JavaScript share one loop. What blocks the loop blocks all of them, and is recorded.
func TestAStallOfTheLoop(t *testing.T) {
	t.Parallel()
	w := wire.Workload{Use: "counter", Params: []byte(`{"locks":1}`)}
	c := work(t, javascript(t, "stands-still"), w, func(*wire.Start) {})
	found, stalls := c.found(), c.record.count(history.Stall, history.Info)
	if len(found) > 0 || stalls < len(c.record.granted()) || c.done.Stall < int64(50*time.Millisecond) {
		t.Errorf("%d grants, %d stalls, the longest %d ns, %q", len(c.record.granted()), stalls, c.done.Stall, found)
	}
}

// surprising reports whether there are unexpected errors. Those of a wait cut short by the end of the run, and of a
// write that was held back, are expected.
func surprising(errors map[string]int64) bool {
	for text := range errors {
		if !strings.HasPrefix(text, "another user has the lock") && !strings.HasPrefix(text, "stopped before the write") {
			return true
		}
	}
	return false
}

// work has two users work until they were granted a few locks.
func work(t *testing.T, start func(context.Context, int) (Process, error), w wire.Workload, change func(*wire.Start)) *client {
	t.Helper()
	o := options(t, start)
	st, err := o.Frame(0)
	if err != nil {
		t.Fatal(err)
	}
	change(st)
	p, err := start(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	c := newClient(p, st, patience)
	t.Cleanup(c.end)
	w.Users, w.Total = 2, 2
	if err := c.begin(t.Context(), &w); err != nil {
		t.Fatal(err)
	}
	c.send(wire.Frame{Type: wire.TypeGo, Go: &wire.Go{Time: now()}})
	const some = 3
	if !wait.Within(patience, func() bool { return c.record.count(history.Acquire, history.Ok) >= some }) {
		t.Errorf("fewer than %d grants", some)
	}
	if err := c.stop(t.Context()); err != nil {
		t.Error(err)
	}
	return c
}

// What a lock does after its TTL proves nothing against it.
func TestOrdersThatOutlastTheTTL(t *testing.T) {
	t.Parallel()
	o := options(t, golang(t, "never-excludes"))
	frame := o.Frame
	o.Frame = func(number int) (*wire.Start, error) {
		st, err := frame(number)
		st.TTL = 1
		return st, err
	}
	i := slices.IndexFunc(checks, func(k check) bool { return k.name == "orders" })
	wrong, err := o.one(t.Context(), i, checks[i])
	if err != nil || len(wrong) != 1 || !strings.HasSuffix(wrong[0], "and the TTL of a grant is 1ns: repeat it on a machine with less load") {
		t.Errorf("%q, %v", wrong, err)
	}
}

// Each of these breaks one rule, and the finding names it.
func TestFindingsNameTheBrokenRule(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ kind, check, want string }{
		{"java forgets", "orders", "an acquire of another user, for 300 ms: while others had it"},
		{"java one-more", "permits", "an acquire of a third user of two permits, for 300 ms: while others had it"},
		{"node forgets", "orders", "an acquire of another user, for 300 ms: while others had it"},
		{"node one-more", "permits", "an acquire of a third user of two permits, for 300 ms: while others had it"},
		{"go forgets", "orders", "an acquire of another user, for 300 ms: while others had it"},
		{"go one-more", "permits", "an acquire of a third user of two permits, for 300 ms: while others had it"},
		{"forgets", "orders", "an acquire of another user, for 300 ms: while others had it"},
		{"one-more", "permits", "an acquire of a third user of two permits, for 300 ms: while others had it"},
		{"go no-bound", "hello", "hello: hung is 0 TTLs and 0s: want a bound above 0, or none"},
		{"java no-bound", "hello", "hello: hung is 0 TTLs and 0s"},
		{"node no-bound", "hello", "hello: hung is 0 TTLs and 0s"},
		{"no-bound", "hello", "hello: hung is 0 TTLs and 0s"},
		{"java never-excludes", "orders", "the lock excludes nobody"},
		{"java late-valid", "workload", "but the TTL is 30s: the validity counts from the send time of the request"},
		{"java no-points", "points", "point no-such-point: no point within 10s"},
		{"java deaf", "giving up", "a cancelled acquire: "},
		{"node never-excludes", "orders", "the lock excludes nobody"},
		{"node no-valid", "orders", "its valid is 0 or missing"},
		{"node late-valid", "workload", "but the TTL is 30s: the validity counts from the send time of the request"},
		{"node no-points", "points", "point no-such-point: no point within 10s"},
		{"node deaf", "giving up", "a cancelled acquire: "},
		{"go never-excludes", "orders", "the lock excludes nobody"},
		{"go interface", "hello", "no hello: its standard output ended"},
		{"go deaf", "giving up", "a cancelled acquire: "},
		{"go no-valid", "orders", "its valid is 0 or missing"},
		{"go late-valid", "workload", "but the TTL is 30s: the validity counts from the send time of the request"},
		{"go no-points", "points", "point no-such-point: no point within 10s"},
		{"garbage", "hello", `"hello, I am a lock" at the start of a frame or batch`},
		{"silent", "hello", "no hello within 1s"},
		{"floods", "orders", "log: more than 10000 unexpected frames"},
		{"floods-a-line", "hello", "a frame of more than 16777216 bytes"},
		{"unasked-grant", "orders", "event 1 (acquire invoke of client-1/1): there was no such order"},
		{"unasked-result", "orders", "result: id is 99, but no order has it"},
		{"dies", "orders", "its standard output ended"},
		{"crashes", "orders", "OSError: no way to the service (toy_lock.py, line "},
		{"never-ready", "orders", "no ready within 10s"},
		{"nameless", "hello", "hello: process is missing"},
		{"another-clock", "hello", "from CLOCK_MONOTONIC, although boot_id and time_ns of hello name that clock"},
		{"never-excludes", "orders", "the lock excludes nobody"},
		{"renews-nothing", "orders", "a renewal of it, which its hello names among orders: result: outcome is \"fail\""},
		{"no-valid", "orders", "its valid is 0 or missing"},
		{"late-valid", "workload", "but the TTL is 30s: the validity counts from the send time of the request"},
		{"endures", "input ends", "the process did not end within 2s"},
		{"deaf", "giving up", "a cancelled acquire: "},
		{"dies-waiting", "giving up", "an acquire that waits: "},
		{"miscounts", "orders", "done: recorded is "},
		{"any-version", "version", "version 99 of the protocol was answered with ready"},
		{"no-points", "points", "point no-such-point: no point within 10s"},
	} {
		t.Run(c.kind, func(t *testing.T) {
			t.Parallel()
			language, kind, named := strings.Cut(c.kind, " ")
			if !named {
				language, kind = "python", c.kind
			}
			o := options(t, toys[language](t, kind))
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
