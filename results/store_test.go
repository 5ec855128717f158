package results

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results/quorum"
)

// TestARunDirectoryHasBounds: the maximum of reasons, replicas and injections is read, and one more is refused.
func TestARunDirectoryHasBounds(t *testing.T) {
	dir := t.TempDir()
	for name, c := range map[string]struct {
		most int
		says string // what there is one too many of
		read func(n int) error
	}{
		"reasons": {maxReasons, FileEnv, func(n int) error {
			if err := WriteJSON(filepath.Join(dir, FileEnv), Env{Schema: EnvSchema, Unknown: make([]string, n)}); err != nil {
				t.Fatal(err)
			}
			_, err := ReadEnv(dir)
			return err
		}},
		"lost processes": {maxReasons, FileEnv, func(n int) error {
			if err := WriteJSON(filepath.Join(dir, FileEnv), Env{Schema: EnvSchema, Clients: slices.Repeat([]ClientStats{{Lost: true}}, n)}); err != nil {
				t.Fatal(err)
			}
			_, err := ReadEnv(dir)
			return err
		}},
		"replicas": {quorum.MaxReplicas, FileEnv, func(n int) error {
			if err := WriteJSON(filepath.Join(dir, FileEnv), Env{Schema: EnvSchema, Replicas: make([]string, n)}); err != nil {
				t.Fatal(err)
			}
			_, err := ReadEnv(dir)
			return err
		}},
		"injections": {maxFaults, fmt.Sprintf("%s: line %d:", FileFaults, maxFaults+1), func(n int) error {
			if err := WriteAtomically(filepath.Join(dir, FileFaults), bytes.Repeat([]byte("{}\n"), n)); err != nil {
				t.Fatal(err)
			}
			_, err := ReadFaults(dir)
			return err
		}},
	} {
		if err := c.read(c.most); err != nil {
			t.Errorf("%d %s: %v", c.most, name, err)
		}
		if err := c.read(c.most + 1); !errors.Is(err, history.ErrCorrupt) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%d %s: %v", c.most+1, name, err)
		}
	}
}

// TestPlaceOfInvalidJSON: errors name the place of invalid JSON and of values of the wrong kind.
func TestPlaceOfInvalidJSON(t *testing.T) {
	for text, want := range map[string]int64{`{"a" 1}`: 6, `{"seed": "x"}`: 12} {
		var into struct {
			Seed int `json:"seed"`
		}
		err := json.Unmarshal([]byte(text), &into)
		if got := offsetOf(fmt.Errorf("run.json: %w", err)); got != want {
			t.Errorf("%s: %d (%v), want %d", text, got, err, want)
		}
	}
	if got := offsetOf(io.ErrUnexpectedEOF); got != 0 {
		t.Errorf("another error: %d", got)
	}
}

// TestAFileThatCannotBeWritten: the old file stays and nothing is left next to it. The disk takes only a part, or a
// folder is in the way.
func TestAFileThatCannotBeWritten(t *testing.T) {
	dir := t.TempDir()
	path, folder := filepath.Join(dir, "file"), filepath.Join(dir, "folder")
	if err := errors.Join(WriteAtomically(path, []byte("old")), os.MkdirAll(filepath.Join(folder, "within"), 0o755)); err != nil {
		t.Fatal(err)
	}
	if err := WriteAtomically(folder, []byte("new")); err == nil {
		t.Error("a folder was replaced by a file")
	}
	const most = 1 << 20
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &before); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: most, Max: before.Max}); err != nil {
		t.Fatal(err)
	}
	bad := WriteAtomically(path, make([]byte, 2*most))
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &before); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(path); bad == nil || err != nil || string(got) != "old" {
		t.Errorf("%v; the file has %d bytes: %v", bad, len(got), err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 2 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
