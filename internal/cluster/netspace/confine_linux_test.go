package netspace

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestConfine: children of a confined thread cannot gain rights; those of another thread are unaffected.
func TestConfine(t *testing.T) {
	status := func(confined bool) string {
		thread := NewThread()
		defer thread.Close()
		if confined {
			if err := thread.Confine(); err != nil {
				t.Fatal(err)
			}
		}
		cmd := exec.Command("sleep", "60")
		if err := thread.Do(cmd.Start); err != nil {
			t.Fatal(err)
		}
		defer func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}()
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	var may uint64 // the capabilities of the test itself
	own, err := os.ReadFile("/proc/self/status")
	if err == nil {
		_, rest, _ := strings.Cut(string(own), "CapEff:\t")
		_, err = fmt.Sscanf(rest, "%x", &may)
	}
	if err != nil {
		t.Fatal(err)
	}
	drops := may&(1<<unix.CAP_SETPCAP) != 0
	const none = "CapBnd:\t0000000000000000\n"
	if text := status(true); !strings.Contains(text, "NoNewPrivs:\t1\n") || drops && !strings.Contains(text, none) {
		t.Errorf("what a confined thread starts:\n%s", text)
	}
	if text := status(false); !strings.Contains(text, "NoNewPrivs:\t0\n") || drops && strings.Contains(text, none) {
		t.Errorf("what another thread starts:\n%s", text)
	}
}
