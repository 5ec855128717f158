package clock

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockquake/lockquake/internal/agent/proc"
	"golang.org/x/sys/unix"
)

// left is a file left by a dead agent.
const left = "# " + stampMark + " 4000000 1 1\n+60.000000000\n"

// The owner of the directory of a libfaketime file can put anything there: it is neither followed, nor waited for, nor
// read endlessly.
func TestAClockFileThatIsATrap(t *testing.T) {
	for what, trap := range map[string]func(dir, file, secret string) error{
		"a link": func(_, file, secret string) error { return os.Symlink(secret, file) },
		"a pipe": func(_, file, _ string) error { return unix.Mkfifo(file, 0o600) },
		"a large file": func(_, file, _ string) error {
			return errorsOf(os.WriteFile(file, []byte(left), 0o600), os.Truncate(file, 600<<20))
		},
		"a linked folder": func(dir, _, secret string) error {
			return errorsOf(os.Remove(dir), os.Symlink(filepath.Dir(secret), dir))
		},
	} {
		t.Run(what, func(t *testing.T) {
			outside, within := t.TempDir(), filepath.Join(t.TempDir(), "clocks")
			secret, file := filepath.Join(outside, "clock"), filepath.Join(within, "clock")
			if err := errorsOf(os.Mkdir(within, 0o700), os.WriteFile(secret, []byte(left), 0o600), trap(within, file, secret)); err != nil {
				t.Fatal(err)
			}
			if by, stands := readStamp(os.Getpid(), file); stands {
				t.Errorf("it was read: %+v", by)
			}
			if err := writeStamp(os.Getpid(), file, 0, proc.Program{}); err == nil {
				t.Error("it was written to")
			}
			if b, err := os.ReadFile(secret); string(b) != left || err != nil {
				t.Errorf("the file that is not the process's own holds %q now, %v", b, err)
			}
		})
	}
}

func errorsOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// No predictable name is written beside the file, and nothing is left.
func TestClockFileFollowsNoLinks(t *testing.T) {
	dir := t.TempDir()
	file, secret := filepath.Join(dir, "f"), filepath.Join(t.TempDir(), "secret")
	if err := errorsOf(os.WriteFile(secret, nil, 0o600), os.WriteFile(file, []byte(left), 0o600), os.Symlink(secret, file+".new")); err != nil {
		t.Fatal(err)
	}
	if by, stands := readStamp(os.Getpid(), file); !stands || by != (proc.Program{PID: 4000000, NS: 1, Start: 1}) {
		t.Fatalf("the file reads as %+v, %v", by, stands)
	}
	if err := writeStamp(os.Getpid(), file, -1, proc.Program{PID: 7}); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(file)
	if want := fmt.Sprintf("# %s 7 0 0\n-0.000000001\n", stampMark); string(b) != want || err != nil {
		t.Errorf("it holds %q, %v; want %q", b, err, want)
	}
	if b, err := os.ReadFile(secret); len(b) > 0 || err != nil {
		t.Errorf("a link beside it was followed: %q, %v", b, err)
	}
	names, err := os.ReadDir(dir)
	if err != nil || len(names) != 2 {
		t.Errorf("the folder holds %v, %v", names, err)
	}
	if info, err := os.Stat(file); err != nil || !strings.HasSuffix(info.Mode().String(), "r--r--") {
		t.Errorf("%v, %v: the process may be another user's, and cannot read it", info.Mode(), err)
	}
}
