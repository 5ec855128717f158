//go:build integration

package locktest

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// example runs go test in the example's module, with the quick checks.
func example(t *testing.T, args ...string) (string, error) {
	t.Helper()
	if os.Getenv("LOCKQUAKE_BIN") == "" {
		t.Fatal("LOCKQUAKE_BIN names no program: make build, and set it as the Makefile does")
	}
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"test", "-count", "1", "-short"}, args...)...)
	cmd.Dir, cmd.Env = "../examples/go-library", append(os.Environ(), "LOCKTEST_PROVIDER="+provider(), "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// provider returns the value of LOCKQUAKE_TEST_PROVIDER, or local (child processes) without it.
func provider() string {
	if p := os.Getenv("LOCKQUAKE_TEST_PROVIDER"); p != "" {
		return p
	}
	return "local"
}

// everything reports whether `make test-all` runs.
func everything() bool { return os.Getenv("LOCKQUAKE_TEST_ALL") != "" }

// checks returns a pattern for some checks of a test, or for all under `make test-all`.
func checks(test string, some ...string) string {
	if everything() {
		return test
	}
	return test + "/^(" + strings.Join(some, "|") + ")$"
}

// TestExample: a correct library passes, each check by name.
func TestExample(t *testing.T) {
	some := []string{"conformance", "contention", "late-renewal", "answers"}
	out, err := example(t, "-v", "-run", checks("TestRedislock", some...))
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if everything() {
		some = append(some, "late-release", "crash")
	}
	for _, name := range append(some, "conformance/expiry") {
		if !regexp.MustCompile(`--- (PASS|SKIP): TestRedislock/` + name + ` `).MatchString(out) {
			t.Errorf("%s was not run\n%s", name, out)
		}
	}
}

// TestBrokenExample: wrong locks fail, with the evidence and the path of the report.
func TestBrokenExample(t *testing.T) {
	for lock, want := range map[string][]string{
		"TestNeverExcludes": {"--- FAIL: TestNeverExcludes/conformance/exclusion-pair", "--- FAIL: TestNeverExcludes/contention", "double_grants: want 0, found", "double grant: client-"},
		"TestFreesForeign": {
			"--- FAIL: TestFreesForeign/conformance/release-stale", "--- FAIL: TestFreesForeign/late-release", "foreign_releases: want 0, found 1", "foreign release: client-",
			"--- FAIL: TestFreesForeign/late-renewal",
		},
		"TestNeverExpires": {"--- FAIL: TestNeverExpires/conformance/expiry", "--- FAIL: TestNeverExpires/crash", "stuck_locks: want 0, found 1", "stuck lock: lock-0"},
	} {
		if lock != "TestFreesForeign" && !everything() {
			t.Logf("left to make test-all: %s", lock)
			continue
		}
		out, err := example(t, "-tags", "broken", "-run", checks(lock, "conformance", "late-release", "late-renewal"))
		if err == nil {
			t.Errorf("%s passes\n%s", lock, out)
		}
		for _, text := range want {
			if !strings.Contains(out, text) {
				t.Errorf("%s: the output does not say %q\n%s", lock, text, out)
			}
		}
		report := regexp.MustCompile(`/\S+/report\.html`).FindString(out)
		if _, err := os.Stat(report); err != nil {
			t.Errorf("%s: its report: %v", lock, err)
		}
		kept := regexp.MustCompile(`/\S*/locktest-[0-9]+/`).FindString(report)
		if kept != "" {
			_ = os.RemoveAll(kept)
		}
	}
}
