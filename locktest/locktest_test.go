package locktest

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/backends/all"
	"github.com/lockquake/lockquake/backends/listed"
	"github.com/lockquake/lockquake/internal/node"
	"github.com/lockquake/lockquake/internal/stories/ask"
	"github.com/lockquake/lockquake/internal/suite"
	"github.com/lockquake/lockquake/lock"
)

// TestImports: other modules that link locktest get no third-party package except golang.org/x/sys, and none of
// lockquake's services or node starters, whatever the tags of their tests.
func TestImports(t *testing.T) {
	t.Parallel()
	const own = "github.com/lockquake/lockquake/"
	allowed := []string{
		"lock", "locktest", "history", "backends", "backends/conformance", "internal/stories/ask", "internal/node", "internal/clock", "internal/wire", "internal/client",
		"workloads", "workloads/resource", "workloads/resource/register",
	}
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "-tags", "integration bench soak", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, pkg := range strings.Fields(string(out)) {
		if name, ours := strings.CutPrefix(pkg, own); ours && !slices.Contains(allowed, name) || !ours && !strings.HasPrefix(pkg, "golang.org/x/sys/") {
			t.Errorf("it links %s", pkg)
		}
	}
}

// TestExampleIsOutside: Go refuses an import of an internal package by the example's module.
func TestExampleIsOutside(t *testing.T) {
	t.Parallel()
	dir, err := filepath.Abs("../examples/go-library")
	if err != nil {
		t.Fatal(err)
	}
	peek, overlay := filepath.Join(t.TempDir(), "peek.go"), filepath.Join(t.TempDir(), "overlay.json")
	for file, text := range map[string]string{
		peek:    "package library\n\nimport _ \"github.com/lockquake/lockquake/internal/wire\"\n",
		overlay: `{"Replace": {"` + filepath.Join(dir, "peek.go") + `": "` + peek + `"}}`,
	} {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "go", "build", "-overlay", overlay, ".")
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "use of internal package github.com/lockquake/lockquake/internal/wire not allowed") {
		t.Errorf("%v\n%s", err, out)
	}
	text, err := os.ReadFile(filepath.Join(dir, "redislock_test.go"))
	if n := strings.Count(string(text), "\n"); err != nil || n >= 40 {
		t.Errorf("it takes %d lines, %v", n, err)
	}
}

// TestStoriesOfServices compares the description of each service with lockquake's own backends, and checks the stories
// that result from a lock's offers.
func TestStoriesOfServices(t *testing.T) {
	t.Parallel()
	list := all.All()
	services := []Service{Redis(), Redlock(), RedisCluster(), RedisSentinel(), Etcd(), ZooKeeper(), Postgres()}
	for _, b := range list {
		if !b.InProcess && !slices.ContainsFunc(services, func(s Service) bool { return s.backend == b.Name }) {
			t.Errorf("service.go has no function for %s", b.Name)
		}
	}
	for _, s := range services {
		r := &runner{settings: settings{ttl: s.ttl, users: 4, clients: 3}, service: s}
		r.lock.Name, r.lock.Offers.Token = s.standIn(false), backends.TokenNone
		r.lock.Points = []string{"before-lock", "half-way", "lock-done", "before-unlock", "unlock-done"}
		made, err := suite.Asked(r.subject(false), "locktest-", list)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"crash-half-way", "late-release-before-unlock"} {
			if !slices.ContainsFunc(made, func(x ask.Story) bool { return x.Name == name }) {
				t.Errorf("%s: there is no story %s, about a point that the lock was seen to pass", s.backend, name)
			}
		}
		_, standIn, err := suite.Locks(s.backend, s.standIn(true), listed.Clients(list))
		if err != nil {
			t.Error(err)
		} else if standIn[0].Offers.Token == backends.TokenNone && s.backend != "redlock" {
			t.Errorf("%s: %s stands in for a lock with tokens, and has none", s.backend, standIn[0].Name)
		}
	}
}

// TestBoundForHungUsers: the story about a user that hangs applies to a lock that declares a bound, with that bound.
func TestBoundForHungUsers(t *testing.T) {
	t.Parallel()
	for _, bound := range []time.Duration{0, 7 * time.Second} {
		r := &runner{settings: settings{ttl: 2 * time.Second, users: 4, clients: 3}, service: Redis()}
		Hung(bound)(&r.settings)
		r.lock.Name, r.lock.Offers = r.service.standIn(false), backends.Offers{Expires: true, Renewal: "call", Token: backends.TokenNone}
		made, err := suite.Asked(r.subject(false), "locktest-", all.All())
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(made, func(x ask.Story) bool { return x.Name == "hung-user" })
		if applies := i >= 0 && made[i].Why == ""; applies != (bound > 0) {
			t.Fatalf("with a bound of %v the story is %+v", bound, made[i])
		}
		if bound > 0 && !strings.Contains(made[i].Scenario, "longest_wait_ms: \"<8000\"") && !strings.Contains(made[i].Scenario, "longest_wait_ms: \"<8s\"") {
			t.Errorf("the story does not demand 8 s:\n%s", made[i].Scenario)
		}
	}
}

// TestJobs replaces lockquake by a program: each job gets its verdicts or the reason for having none, and a program
// that ends says why.
func TestJobs(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "lockquake")
	text := `#!/bin/sh
[ "$*" = "run - --format json --seed 7" ] || { echo "lockquake: $*" >&2; exit 2; }
while read -r line; do
	case $line in
	*two*) echo '{"scenario": "a", "verdict": "pass", "run_dir": "x", "judged": {"grants": 3}} {"scenario": "b", "verdict": "fail", "run_dir": "y"} {"job": "", "runs": 2, "code": 1}' ;;
	*gone*) echo '{"scenario": "c", "verdict": "unknown", "run_dir": ""} {"job": "", "runs": 0, "code": 3, "error": "no engine"}' ;;
	*late*) echo '{"job": "", "runs": 0, "code": 4, "error": "the budget of 5s"}' ;;
	*wrong*) echo '{"job": "", "runs": 0, "code": 2, "error": "unknown key"}' ;;
	*) echo "lockquake: it broke" >&2; exit 9 ;;
	esac
done
exit 1
`
	if err := os.WriteFile(file, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	j, err := program(file).jobs(t.Context(), []string{"--seed", "7"})
	if err != nil {
		t.Fatal(err)
	}
	list, err := j.do("two", []string{"run.for=1s"})
	if err != nil || len(list) != 2 || list[0].Verdict != pass || list[0].Judged.Grants != 3 || list[1].RunDir != "y" {
		t.Errorf("%+v, %v", list, err)
	}
	for scenario, want := range map[string]string{"gone": "not run here: lockquake: no engine", "late": "not run: the budget of 5s", "wrong": "lockquake: unknown key"} {
		if list, err := j.do(scenario, nil); err == nil || err.Error() != want || len(list) > 0 {
			t.Errorf("%s: %v, %v; want %s", scenario, list, err, want)
		}
	}
	if err := j.end(); err != nil {
		t.Errorf("a run that failed is no failure of the program: %v", err)
	}
	if j, err = program(file).jobs(t.Context(), []string{"--seed", "7"}); err != nil {
		t.Fatal(err)
	}
	if _, err := j.do("?", nil); err == nil || !strings.Contains(err.Error(), "lockquake: it broke (exit status 9)") {
		t.Errorf("%v", err)
	}
}

func TestEndpoints(t *testing.T) {
	t.Parallel()
	a := backends.Access{Login: node.Login{Password: "p/w"}, Nodes: []backends.Endpoint{
		{Addresses: map[string]string{"client": "h:1"}},
		{Addresses: map[string]string{"sentinel": "h:2"}, Login: &node.Login{Password: "s"}},
	}}
	for want, s := range map[string]Service{
		"redis://:p%2Fw@h:1": Redis(), "redis://:p%2Fw@h:2?master_name=lockquake&sentinel_password=s": RedisSentinel(), "http://h:1": Etcd(), "h:1": ZooKeeper(),
		"postgres://lockquake:p%2Fw@h:1/postgres?sslmode=disable": Postgres(),
	} {
		if got := s.endpoints(a); !slices.Equal(got, []string{want}) {
			t.Errorf("%s: %q, want %q", s.backend, got, want)
		}
	}
	with := Etcd().With("version", "3.4")
	if r := (&runner{service: with.With("nodes", "5"), settings: settings{ttl: time.Second}}); !slices.Equal(r.sets("backend."),
		[]string{"--set", "backend.nodes=5", "--set", "backend.version=3.4"}) || len(with.set) != 1 {
		t.Errorf("%q, %v", r.sets("backend."), with.set)
	}
}

// TestArguments checks how the test's program is run again.
func TestArguments(t *testing.T) {
	t.Parallel()
	var test string
	t.Run("first", func(t *testing.T) {
		test = t.Name()
		if first, next := thisRun(t), thisRun(t); first != (run{test, 0}) || next != (run{test, 1}) {
			t.Errorf("%v and %v", first, next)
		}
	})
	if n, left := runs[test]; left { // with -count the test runs again under the same name
		t.Errorf("after the test %d runs are counted", n)
	}
	got := run{"TestX/a.b", 1}.arguments(announced{[]string{"half-way"}, true})
	want := []string{mark, "TestX/a.b", "1", `{"Points":["half-way"],"Tells":true}`}
	if got[0] != `-test.run=^TestX$/^a\.b$` || !slices.Equal(got[len(got)-4:], want) {
		t.Errorf("%q", got)
	}
}

// TestNoProgram: without the program, the error says in one line how to get it.
func TestNoProgram(t *testing.T) {
	t.Setenv("LOCKQUAKE_BIN", "")
	t.Setenv("PATH", t.TempDir())
	if _, err := findProgram(); !errors.Is(err, errNoProgram) || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), "go install ") {
		t.Errorf("no program: %v", err)
	}
	t.Setenv("LOCKQUAKE_BIN", filepath.Join(t.TempDir(), "gone"))
	if _, err := findProgram(); err == nil || !strings.Contains(err.Error(), "LOCKQUAKE_BIN") {
		t.Errorf("one that is not there: %v", err)
	}
	t.Setenv("LOCKQUAKE_BIN", os.Args[0])
	if p, err := findProgram(); err != nil || string(p) != os.Args[0] {
		t.Errorf("one that is: %q, %v", p, err)
	}
}

// TestVerdictInWords: the text has the unmet expectations and their evidence, and nothing else.
func TestVerdictInWords(t *testing.T) {
	t.Parallel()
	var v verdict
	if err := json.Unmarshal([]byte(`{"reasons": ["why"], "expectations": [
		{"name": "double_grants", "want": "0", "got": 3, "verdict": "fail"}, {"name": "stale_writes", "want": "0", "got": 0, "verdict": "pass"}],
		"findings": [{"witnesses": [{"kind": "double_grant", "text": "one"}, {"kind": "double_grant", "text": "two"}, {"kind": "double_grant", "text": "three"},
			{"kind": "stale_write", "text": "four"}]}]}`), &v); err != nil {
		t.Fatal(err)
	}
	if got, want := v.text(), "double_grants: want 0, found 3\n  double grant: one\n  double grant: two"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	v.Expectations = nil
	if got := v.text(); got != "why" {
		t.Errorf("%q", got)
	}
}

var errTaken, errGone = errors.New("taken"), errors.New("gone")

// shelf is a library whose handles are names. A listed name is taken; a name that begins with "lost" is gone when it
// is used.
type shelf map[string]bool

func (s shelf) library() Library[string] {
	use := func(name string) error {
		if strings.HasPrefix(name, "lost") {
			return errGone
		}
		return nil
	}
	return Library[string]{
		Obtain: func(_ context.Context, r lock.Request) (string, error) {
			if s[r.Lock] {
				return "", errTaken
			}
			s[r.Lock] = true
			return r.Lock, nil
		},
		Release:   func(_ context.Context, name string) error { delete(s, name); return use(name) },
		Renew:     func(_ context.Context, name string, _ time.Duration) error { return use(name) },
		Contended: errTaken, NotHeld: errGone, Pause: time.Millisecond,
	}
}

func TestLibrary(t *testing.T) {
	t.Parallel()
	s := shelf{"theirs": true}
	u := s.library().Locker()
	ask := func(name string) (lock.Grant, error) {
		return u.(lock.TryAcquirer).TryAcquire(t.Context(), lock.Request{Lock: name, TTL: time.Minute})
	}
	if _, err := ask("theirs"); !errors.Is(err, lock.ErrContended) || !errors.Is(err, errTaken) {
		t.Errorf("a taken lock: %v", err)
	}
	before := time.Now()
	g, err := ask("ours")
	end, ends := g.ValidUntil.Time()
	if err != nil || g.ID == "" || g.Issued.Before(before) || !ends || !end.Before(time.Now().Add(time.Minute)) {
		t.Errorf("%+v, %v", g, err)
	}
	if next, err := u.(lock.Renewer).Renew(t.Context(), g, time.Hour); err != nil || !next.ValidUntil.Covers(time.Now().Add(time.Minute)) {
		t.Errorf("renewed: %+v, %v", next, err)
	}
	if err := u.Release(t.Context(), g); err != nil || s["ours"] {
		t.Errorf("released: %v", err)
	}
	if err := u.Release(t.Context(), g); !errors.Is(err, lock.ErrNotHeld) {
		t.Errorf("released again: %v", err)
	}
	if g, err = ask("lost"); err != nil {
		t.Fatal(err)
	}
	if _, err := u.(lock.Renewer).Renew(t.Context(), g, time.Hour); !errors.Is(err, lock.ErrNotHeld) {
		t.Errorf("a lost grant is renewed: %v", err)
	}
	if err := u.Release(t.Context(), g); !errors.Is(err, lock.ErrNotHeld) || !errors.Is(err, errGone) {
		t.Errorf("a lost grant is released: %v", err)
	}
	if _, err := ask("held"); err != nil {
		t.Fatal(err)
	}
	if err := u.Close(); err != nil || s["held"] {
		t.Errorf("closed, it still holds: %v, %v", s, err)
	}
	l := s.library()
	l.Renew = nil
	if _, renews := l.Locker().(lock.Renewer); renews {
		t.Error("a library that cannot extend grants is a Renewer")
	}
	within, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
	defer cancel()
	if _, err := l.Locker().Acquire(within, lock.Request{Lock: "theirs"}); !errors.Is(err, lock.ErrContended) {
		t.Errorf("a wait that is given up: %v", err)
	}
}
