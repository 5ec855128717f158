package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/backends/external"
	"github.com/lockquake/lockquake/internal/stories"
)

// finding is a story of the default suite that finds what is wrong with a lock, with what a reason of it begins.
type finding struct{ story, reason string }

// findings has every lock that is wrong on purpose, and locks of Redis by the first backend on which they run.
var findings = map[string][]finding{
	"redis/setnx":                      {{"crash", "stuck_locks 0: found"}, {"slow-replies", "orphan_age_ms <"}},
	"redis/setnx-expire":               {{"crash-setnx-done", "stuck_locks 0: found"}},
	"redis/set-px-del":                 {{"late-release", "double_grants 0: found"}},
	"redis/get-then-del":               {{"late-release-get-done", "double_grants 0: found"}, {"slow-release", "double_grants 0: found"}},
	"redlock/redlock-no-elapsed-check": {{"late-replies", "overlapping_holds 0: found"}},
	"redlock/redlock-incr":             {{"contention", "token_regressions 0: found"}},
	"memory/never-excludes":            {{"contention", "double_grants 0: found"}},
	"memory/expires-early":             {{"late-release", "double_grants 0: found"}},
	"memory/forgets-renewals":          {{"renewal", "double_grants 0: found"}},
	"memory/reuses-tokens":             {{"late-release", "token_regressions 0: found"}},
	"memory/falling-tokens":            {{"contention", "token_regressions 0: found"}},
	"memory/wraps-tokens":              {{"many-holds", "token_regressions 0: found"}},
	"memory/late-fence":                {{"late-token-granted", "false_refusals 0: found"}},
	"memory/frees-foreign":             {{"late-release", "double_grants 0: found"}},
	"memory/never-expires":             {{"overdue", "held_beyond_validity_ms <"}},
	"memory/last-first":                {{"queue", "starved_users 0: found"}},
	"memory/never-refuses":             {{"late-release", "releases_of_nothing 0: found"}},
	"memory/keeps-released":            {{"answers", "false_results 0: found"}},
	"memory/denies-renewals":           {{"answers", "false_results 0: found"}},
	"memory/grants-to-nobody":          {{"gives-up", "orphans 0: found"}},
	"memory/storms":                    {{"waiting", "requests_per_wait_s <500: measured"}},
	"memory/deaf":                      {{"cancel", "deaf_waits 0: found"}},
	"memory/never-tells":               {{"news", "untold_losses 0: found"}},
	"memory/tells-late":                {{"news", "untold_losses 0: found"}},
	"memory/wedges":                    {{"again", "wedges 0: found"}},
	"memory/mixes-names":               {{"like-names", "stuck_locks 0: found"}},
	"redis/weak-owner":                 {{"still-clock", "double_grants 0: found"}},
	"redis/stubborn":                   {{"hang", "deaf_waits 0: found"}, {"refuse", "wedges 0: found"}},
	"redis/wasteful": {
		{"answers", "requests_per_acquire <"}, {"answers", "requests_per_release <"}, {"waiting", "connections_per_grant <"}, {"waiting", "client_cpu_ms_per_wait_s <"},
	},
	"etcd/v3lock-blind": {{"waiter-cut", "overlapping_holds 0: found"}}, // of etcd 3.4
}

// leftToAllLocks are stories of locks that are left to make test-all, and the lock with which `make test` sees the same
// reason.
var leftToAllLocks = map[string]string{
	"redis/setnx-expire crash-setnx-done":      "redis/setnx",
	"redis/set-px-del late-release":            "redis/weak-owner",
	"redis/get-then-del late-release-get-done": "redis/weak-owner",
	"redlock/redlock-incr contention":          "memory/falling-tokens",
	// Its grant must end within the 100 ms between two requests of a release: a machine that takes a core for 200 ms moves it out of there.
	"redis/get-then-del slow-release": "redis/weak-owner",
}

// findingsOf are those of a lock.
func findingsOf(backend, lock string) []finding {
	if slices.Contains([]string{"sentinel", "rediscluster"}, backend) {
		backend = "redis"
	}
	return findings[backend+"/"+lock]
}

// TestEveryWrongLockHasAFinding: whoever adds a wrong lock says which story finds it, here and in docs/suites.md, and the story applies to it.
func TestEveryWrongLockHasAFinding(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/suites.md")
	if err != nil {
		t.Fatal(err)
	}
	left := map[string]bool{}
	for name := range findings {
		left[name] = true
	}
	for _, b := range catalog().Backends {
		for _, l := range b.Locks {
			all := findingsOf(b.Name, l.Name)
			if delete(left, b.Name+"/"+l.Name); len(all) > 0 != (l.Wrong != "") {
				t.Errorf("%s/%s is wrong for %q, and has the findings %v", b.Name, l.Name, l.Wrong, all)
			}
			for _, f := range all {
				like, left := leftToAllLocks[b.Name+"/"+l.Name+" "+f.story]
				if left && !slices.ContainsFunc(findings[like], func(g finding) bool { return g.reason == f.reason && leftToAllLocks[like+" "+g.story] == "" }) {
					t.Errorf("%s/%s, %s is left to make test-all, but %s is not found for %q", b.Name, l.Name, f.story, like, f.reason)
				}
				if row := "| `" + l.Name + "` | `" + f.story + "` |"; !strings.Contains(string(page), row) {
					t.Errorf("docs/suites.md does not say %s", row)
				}
				if !applies(b.Backend, l, f.story) {
					t.Errorf("%s/%s is found by %s, which does not apply to it", b.Name, l.Name, f.story)
				}
			}
		}
	}
	if len(left) > 0 {
		t.Errorf("there are no such locks: %v", left)
	}
}

// applies tells whether a story of the default suite is for that lock.
func applies(b backends.Backend, l backends.Lock, story string) bool {
	s := stories.Subject{Backend: b.Name, Servers: b.Servers, Lock: l, TTL: time.Second, Clients: 2, Users: 2, InProcess: b.InProcess}
	return slices.ContainsFunc(stories.Of(s), func(x stories.Story) bool { return x.Name == story && x.Why(s) == "" })
}

// TestSuiteIsPlannable demands that each story of each lock, and random chaos, could be started.
func TestSuiteIsPlannable(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "all.yaml")
	python, err := filepath.Abs("../../clients/python/testdata")
	if err != nil {
		t.Fatal(err)
	}
	text := "random: {seeds: [1]}\nstories: [default]\nlocks:\n"
	for _, b := range catalog().Backends {
		if b.Name == external.Name { // whose locks are in a program
			text += "  - {backend: external, client: {run: [python3, toy_lock.py], dir: " + python + "}, set: ['backend.start={command: [x], ports: {client: 1}}']}\n"
			continue
		}
		text += "  - {backend: " + b.Name + ", lock: \"*\"}\n"
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, told bytes.Buffer
	code := execute([]string{"suite", file, "--dry-run", "--provider", "local"}, streams{in: strings.NewReader(""), out: &out, err: &told})
	if code != codeMet || strings.Contains(out.String(), "not run:") || strings.Count(out.String(), ", random-1: Users fight") < 30 {
		t.Errorf("exit code %d\n%s\n%s", code, &out, &told)
	}
	for _, want := range []string{
		"external/own by python3 toy_lock.py, late-release: A holder", "does not apply: external/own by python3 toy_lock.py, answers: nobody can ask the service",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("it does not print %q\n%s", want, &out)
		}
	}
}
