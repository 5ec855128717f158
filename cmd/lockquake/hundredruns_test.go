//go:build integration && linux

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lockquake/lockquake/internal/cli"
)

// held is what a process uses of the machine.
type held struct {
	files, threads, children int
	resident                 int64 // bytes
}

// String lists all fields.
func (h held) String() string {
	return fmt.Sprintf("%d files, %d threads, %d children, %d MiB resident", h.files, h.threads, h.children, h.resident>>20)
}

// heldBy inspects a running process. ok is false if it has ended.
func heldBy(pid int) (h held, ok bool) {
	dir := fmt.Sprintf("/proc/%d/", pid)
	files, err := os.ReadDir(dir + "fd")
	if err != nil {
		return h, false
	}
	h.files = len(files)
	tasks, _ := os.ReadDir(dir + "task")
	h.threads = len(tasks)
	for _, t := range tasks {
		of, _ := os.ReadFile(dir + "task/" + t.Name() + "/children")
		h.children += len(strings.Fields(string(of)))
	}
	statm, _ := os.ReadFile(dir + "statm")
	var size, pages int64
	_, err = fmt.Sscan(string(statm), &size, &pages)
	h.resident = pages * int64(os.Getpagesize())
	return h, err == nil
}

// least returns the minimum of each field.
func (h held) least(o held) held {
	return held{min(h.files, o.files), min(h.threads, o.threads), min(h.children, o.children), min(h.resident, o.resident)}
}

// TestAloneHundredRuns makes a hundred runs in one process, with kept servers and with fresh ones. The least it uses
// in the last ten runs must not exceed that of the tenth to the twentieth. Nothing of it may remain on the machine.
func TestAloneHundredRuns(t *testing.T) {
	if setting("LOCKQUAKE_MOMENTS", "0") == "0" {
		t.Skip("it takes minutes: make test-all sets LOCKQUAKE_MOMENTS")
	}
	for name, flags := range map[string][]string{"kept": nil, "fresh": {"--fresh"}} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.Chmod(filepath.Dir(dir), 0o711); err != nil { // servers of another user must be able to pass
				t.Fatal(err)
			}
			t.Setenv("TMPDIR", dir)
			p := begin(t, append([]string{
				"run", "redis-healthy", "--provider", "local", "--repeat", "100", "--format", "table",
				"--set", "run.for=200ms", "--set", "run.settle=1ms", "--set", "workload.clients=2", "--set", "workload.users=2",
			}, flags...)...)
			ended := make(chan int)
			go func() { ended <- p.wait(t) }()
			var first, last *held
			for code := -2; code == -2; time.Sleep(5 * time.Millisecond) {
				select {
				case code = <-ended:
					if code != cli.CodeMet && code != cli.CodeInconclusive { // so short a load may be too little to judge
						t.Errorf("exit code %d\n%s", code, p.stderr.String())
					}
					continue
				default:
				}
				made, _ := filepath.Glob(filepath.Join(p.dir, "runs", "redis-healthy", "2*"))
				at := &first
				switch n := len(made); {
				case n > 90 && n < 100: // during the last run it may be ending, and hold nothing
					at = &last
				case n <= 10 || n > 20:
					continue
				}
				now, ok := heldBy(p.cmd.Process.Pid)
				if ok && *at != nil {
					now = now.least(**at)
				}
				if ok {
					*at = &now
				}
			}
			if first == nil || last == nil {
				t.Fatalf("it was not seen at work: %v, %v\n%s", first, last, p.stderr.String())
			}
			t.Logf("after 10 runs %v; after 90 runs %v", first, last)
			// The runtime keeps threads and memory that it once needed.
			if last.files > first.files+2 || last.children > first.children || last.threads > first.threads+8 || last.resident > first.resident+64<<20 {
				t.Errorf("it held %v after 10 runs, and %v after 90", first, last)
			}
			gone(t, p)
			emptied(t)
		})
	}
}
