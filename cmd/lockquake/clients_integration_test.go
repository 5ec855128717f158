//go:build integration

package main

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lockquake/lockquake/internal/cli"
	"github.com/lockquake/lockquake/results"
)

// clientImage builds the image for clients in another language.
func clientImage(t *testing.T, name string) {
	t.Helper()
	if out, err := exec.Command(program(t), "images", name).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// scripts are the languages without a compiler, by image of their clients.
var scripts = map[string]struct{ command, dir string }{
	"python": {"python3", "../../clients/python"},
	"nodejs": {"node", "../../clients/node"},
}

// scriptClient returns the --set that replaces the client by a program of clients/.
func scriptClient(t *testing.T, image, file string) string {
	t.Helper()
	dir, err := filepath.Abs(scripts[image].dir)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("workload.client={run: [%s, %s], dir: %q}", scripts[image].command, file, dir)
}

// curator is the class path of Curator's recipes, on this machine and in the image.
const curator = "/usr/share/java/curator-recipes.jar"

// javaClasses compiles clients/java into the directory classes below the returned one.
func javaClasses(t *testing.T) string {
	t.Helper()
	compiler, err := exec.LookPath("javac")
	if err == nil {
		_, err = os.Stat(curator)
	}
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("%v: run `.ci/setup java`", err)
		}
		t.Skipf("%v: run `.ci/setup java` to test clients/java", err)
	}
	dir := t.TempDir()
	files, _ := filepath.Glob("../../clients/java/*.java") // the pattern is valid
	if out, err := exec.Command(compiler, append([]string{"-cp", curator, "-d", filepath.Join(dir, "classes")}, files...)...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return dir
}

// javaClient returns the --set that replaces the client by a class of clients/java. Containers have it in the image,
// which needs no JDK here.
func javaClient(t *testing.T, class, provider string) string {
	t.Helper()
	if provider == "docker" {
		return fmt.Sprintf("workload.client={run: [java, %s]}", class)
	}
	return fmt.Sprintf("workload.client={run: [java, -cp, 'classes:%s', %s], dir: %q}", curator, class, javaClasses(t))
}

// TestClientsInOtherLanguages replaces the built-in client by lock libraries of other languages. They pass where it
// passes, and find what it finds.
func TestClientsInOtherLanguages(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ scenario, provider, image, program, process string }{
		{"redis-healthy", "docker", "python", "redis_lock.py", "redis-py Lock"},
		{"redis-holder-pause", "docker", "python", "redis_lock.py", "redis-py Lock"},
		{"redis-healthy", "docker", "python", "portalocker_lock.py", "portalocker RedisLock"},
		{"zookeeper-healthy", "docker", "python", "kazoo_lock.py", "kazoo Lock"},
		{"zookeeper-holder-pause", "docker", "python", "kazoo_lock.py", "kazoo Lock"},
		{"zookeeper-healthy", "docker", "java", "CuratorLock", "Curator InterProcessMutex"},
		{"zookeeper-healthy", "local", "java", "CuratorLock", "Curator InterProcessMutex"},
		{"zookeeper-holder-pause", "docker", "java", "CuratorLock", "Curator InterProcessMutex"},
		{"redis-healthy", "docker", "nodejs", "redis_lock.mjs", "SET NX PX in JavaScript"},
		{"redis-healthy", "local", "nodejs", "redis_lock.mjs", "SET NX PX in JavaScript"},
	} {
		t.Run(strings.Join([]string{c.scenario, c.provider, c.program}, " "), func(t *testing.T) {
			if c.scenario != "redis-holder-pause" {
				leftToAll(t, "a pause of the holder on Redis shows a program in the place of the client")
			}
			t.Parallel()
			if c.provider == "docker" {
				clientImage(t, c.image)
			}
			options := []string{"run", c.scenario, "--provider", c.provider, "--format", "json", "--set"}
			if c.image == "java" {
				options = append(options, javaClient(t, c.program, c.provider), "--set", "run.for=18s") // eight JVMs take a while to the first grant
			} else {
				options = append(options, scriptClient(t, c.image, c.program))
			}
			p := begin(t, options...)
			code := p.wait(t)
			r := p.report(t)
			if wantPassed(t, code, []results.Report{r}); r.Judged.Grants < 100 {
				t.Errorf("%d grants", r.Judged.Grants)
			}
			if i := slices.IndexFunc(r.Clients, func(x results.ReportClient) bool { return x.Process == c.process && x.Foreign }); i < 0 {
				t.Errorf("the report does not name the program: %+v", r.Clients)
			}
			if command := cmp.Or(scripts[c.image].command, "java"); !strings.HasPrefix(r.Program, command) || !strings.HasSuffix(r.Program, c.program) {
				t.Errorf("its clients are of %q", r.Program)
			}
		})
	}
}

// neverLock returns the scenario key for a client whose lock grants to everyone, in a directory that is copied into
// its container.
func neverLock(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	copyPython(t, dir, "lockquake.py", "redis_lock.py", "testdata/never_lock.py")
	return fmt.Sprintf("workload.client={run: [python3, never_lock.py], dir: %q}", dir)
}

// copyPython copies files of clients/python into one directory.
func copyPython(t *testing.T, dir string, names ...string) {
	t.Helper()
	for _, name := range names {
		b, err := os.ReadFile(filepath.Join("../../clients/python", name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, filepath.Base(name)), b, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestAWrongLockInPython: a lock that does not exclude is found in any language.
func TestAWrongLockInPython(t *testing.T) {
	t.Parallel()
	clientImage(t, "python")
	p := begin(t, "run", "redis-healthy", "--provider", "docker", "--format", "json", "--set", "run.for=3s",
		"--set", neverLock(t))
	code := p.wait(t)
	if r := p.report(t); code != cli.CodeFailed || r.Verdict != results.Fail || r.Counts["double_grants"] == nil || *r.Counts["double_grants"] == 0 {
		t.Errorf("exit code %d, %s, %v", code, r.Verdict, r.Counts["double_grants"])
	}
}

// TestPointsOfAClientInPython stops a user at a point of its library. A point that the client does not announce is
// refused before the start.
func TestPointsOfAClientInPython(t *testing.T) {
	t.Parallel()
	clientImage(t, "python")
	story := func(point string) string {
		file := filepath.Join(t.TempDir(), "story.yaml")
		text := strings.ReplaceAll(`name: story
claim: A client in Python stops where it is told to.
backend: {use: redis, ttl: 2s}
workload: {resource: {use: register}}
run: {seed: 1}
steps:
  - {do: arm, user: A, point: POINT, action: wait}
  - {do: acquire, user: A, async: true}
  - {await: point, user: A, point: POINT}
  - {do: continue, user: A, point: POINT}
  - {await: event, user: A, event: acquire ok}
  - {do: write, user: A, value: 1}
  - {do: release, user: A}
  - {do: acquire, user: B}
expect: {double_grants: "0", judged: ">=2"}
`, "POINT", point)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	client := scriptClient(t, "python", "redis_lock.py")
	p := begin(t, "run", story("lock-done"), "--provider", "docker", "--format", "json", "--set", client)
	if code := p.wait(t); code != cli.CodeMet {
		t.Errorf("exit code %d\n%s\n%s", code, p.stdout.String(), p.stderr.String())
	}
	p = begin(t, "run", story("set-done"), "--provider", "docker", "--set", client)
	if code := p.wait(t); code != cli.CodeUsage || !strings.Contains(p.stderr.String(), "steps.0.point: redis-py Lock does not announce it; it announces acquired") {
		t.Errorf("exit code %d\n%s", code, p.stderr.String())
	}
}

// TestClientCheck runs `client check` on the clients that ship, as the author of a new client would.
func TestClientCheck(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		backend, image string // "": its program needs no image of its own
		dir            func(*testing.T) string
		argv           []string
	}{
		{"redis", "python", inPython, []string{"python3", "redis_lock.py"}},
		{"zookeeper", "python", inPython, []string{"python3", "kazoo_lock.py"}},
		{"zookeeper", "java", javaClasses, []string{"java", "-cp", "classes:" + curator, "CuratorLock"}},
		{"zookeeper", "java", javaClasses, []string{"java", "-cp", "classes:" + curator, "CuratorSemaphore"}},
		{"redis", "nodejs", inNode, []string{"node", "redis_lock.mjs"}},
		{"redis", "", inGo, []string{"redislock", "github.com/bsm/redislock@v0.9.0"}},
		{"redlock", "", inGo, []string{"redsync", "github.com/go-redsync/redsync/v4@v4.0.4"}},
	} {
		t.Run(c.argv[len(c.argv)-1], func(t *testing.T) {
			if !slices.Contains(c.argv, "redis_lock.py") {
				leftToAll(t, "redis_lock.py is asked the same, and TestVersionsOfAGoLibrary puts a client in Go to a suite")
			}
			cmd := exec.Command(program(t), append([]string{"client", "check", "--backend", c.backend, "--provider", "docker", "--"}, c.argv...)...)
			cmd.Dir = c.dir(t)
			if c.image != "" {
				clientImage(t, c.image)
			}
			out, err := cmd.CombinedOutput()
			if err != nil || strings.Count(string(out), "  ok\n") < 8 { // permits has a line of its own
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// TestReentryAndPermitsOfClients puts clients that are re-entrant or have permits to the stories about that, and their
// wrong twins.
func TestReentryAndPermitsOfClients(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		story, client string
		right         bool
	}{
		{"reentry", "python3 redis_reentrant.py", true},
		{"reentry", "python3 redis_reentrant.py forgets", false},
		{"permits", "python3 redis_semaphore.py", true},
		{"permits", "python3 redis_semaphore.py check-then-add", false},
	} {
		t.Run(c.client, func(t *testing.T) {
			if c.right {
				leftToAll(t, "its wrong twin is put to the same story")
			}
			clientImage(t, "python")
			cmd := exec.Command(program(t), "suite", "redis", "--provider", "docker", "--client", c.client, "--story", c.story, "--out", t.TempDir())
			cmd.Dir = inPython(t)
			out, err := cmd.CombinedOutput()
			if want := map[bool]string{true: "1 green", false: "double_grants 0: found"}[c.right]; (err == nil) != c.right || !strings.Contains(string(out), want) {
				t.Errorf("%v, want %q\n%s", err, want, out)
			}
		})
	}
}

// TestBoundForHungUsersOfClients puts a client with a watchdog to the story about a user that hangs. Renewing for ever
// is wrong only if the client declares a bound; without one it is told as a property.
func TestBoundForHungUsersOfClients(t *testing.T) {
	t.Parallel()
	for client, want := range map[string]string{
		"redis_watchdog.py":                     "1 green",
		"redis_watchdog.py for-ever":            "longest_wait_ms <8s: measured",
		"redis_watchdog.py for-ever undeclared": "renews for hung users: yes",
	} {
		t.Run(client, func(t *testing.T) {
			clientImage(t, "python")
			cmd := exec.Command(program(t), "suite", "redis", "--provider", "docker", "--client", "python3 "+client, "--story", "hung-user", "--out", t.TempDir())
			cmd.Dir = inPython(t)
			out, err := cmd.CombinedOutput()
			if right := client != "redis_watchdog.py for-ever"; (err == nil) != right || !strings.Contains(string(out), want) {
				t.Errorf("%v, want %q\n%s", err, want, out)
			}
		})
	}
}

// TestClientCheckShowsLastOutput: a program that ends before its hello has its last output in the error.
func TestClientCheckShowsLastOutput(t *testing.T) {
	t.Parallel()
	clientImage(t, "python")
	cmd := exec.Command(program(t), "client", "check", "--provider", "docker", "--", "python3", "-c", "import nothing_like_it")
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "no hello: its standard output ended") || !strings.Contains(string(out), "client-1: its last line: ModuleNotFoundError: No module named 'nothing_like_it'") {
		t.Errorf("%v\n%s", err, out)
	}
}

func inPython(*testing.T) string { return scripts["python"].dir }
func inNode(*testing.T) string   { return scripts["nodejs"].dir }
func inGo(*testing.T) string     { return "../../clients/go" }

// TestAServiceThatLockquakeDoesNotKnow injects faults into servers that lockquake knows only by command and port.
// Grants are held for longer than a core may be busy with other work. Otherwise the holder to pause would have
// released before it is found.
func TestAServiceThatLockquakeDoesNotKnow(t *testing.T) {
	t.Parallel()
	clientImage(t, "python")
	dir, err := filepath.Abs("../../clients/python")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "external.yaml")
	text := fmt.Sprintf(`name: external
claim: A Redis that lockquake is not told of is broken like any other service.
backend:
  use: external
  ttl: 2s
  client: {run: [python3, redis_lock.py], dir: %q}
  recovery: 10s # a container may start slowly
  start:
    image: lockquake-redis:latest
    command: [redis-server, --port, "{client.port}", --bind, "{listen}", --protected-mode, "no", --save, ""]
    ports: {client: 6379}
    ready: {send: "PING\r\n", expect: PONG}
workload: {use: counter, clients: 4, users: 2, hold: 300ms, timeout: 3s, resource: {use: register}}
chaos:
  - {use: kill, on: service-1, at: 2s, for: 500ms}
  - {use: pause, on: holder, at: 5s, for: 3s}
run: {for: 10s, seed: 1}
expect: {double_grants: ">=0", overlapping_holds: ">0", stale_writes: ">=0", lost_updates: ">=0", judged: ">=5"}
`, dir)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p := begin(t, "run", file, "--provider", "docker", "--format", "json")
	code := p.wait(t)
	r := p.report(t)
	if wantPassed(t, code, []results.Report{r}); len(r.Faults) != 2 {
		t.Errorf("faults %+v", r.Faults)
	}
}
