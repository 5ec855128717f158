//go:build integration

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

// TestStoriesInPytest has pytest collect the stories of a correct lock and of one that never excludes.
func TestStoriesInPytest(t *testing.T) {
	t.Parallel()
	pytest, err := exec.LookPath("pytest-3")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("%v: run `.ci/setup python`", err)
		}
		t.Skipf("%v: run `.ci/setup python` to test clients/python/locktest.py", err)
	}
	clientImage(t, "python")
	dir := t.TempDir()
	copyPython(t, dir, "lockquake.py", "redis_lock.py", "locktest.py", "testdata/never_lock.py")
	text := `import locktest

test_right = locktest.stories("redis", "python3 redis_lock.py", quick=True, out="runs")
test_wrong = locktest.stories("redis", "python3 never_lock.py", quick=True, out="runs")
test_nothing = locktest.stories("redis/nothing", "python3 redis_lock.py")
`
	if err := os.WriteFile(filepath.Join(dir, "test_lock.py"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(pytest, "-rA", "-p", "no:cacheprovider", "-k", "late-release or queue or nothing", "--deselect", "test_lock.py::test_right[late-release-before-unlock]")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "LOCKQUAKE_BIN="+program(t), "LOCKTEST_PROVIDER=docker")
	out, err := cmd.CombinedOutput()
	if err == nil {
		t.Error("the tests of a wrong lock passed")
	}
	for _, want := range []string{
		`(?m)^PASSED test_lock.py::test_right\[late-release\]$`,
		`(?m)^FAILED test_lock.py::test_wrong\[late-release\]`,
		`double_grants 0: found [1-9]`,
		`(?m)^runs/suite-late-release/.*/report.html$`,
		`again: .*lockquake run .*/stories/late-release.yaml --provider docker`,
		`SKIPPED .*: the lock does not promise to serve users in order`,
		`(?m)^FAILED test_lock.py::test_nothing\[lockquake\]`,
		`lockquake: suite: no such lock: redis has no lock "nothing"`,
	} {
		if !regexp.MustCompile(want).Match(out) {
			t.Errorf("it does not say %s", want)
		}
	}
	if t.Failed() {
		t.Logf("%s", out)
	}
}
