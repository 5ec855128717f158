//go:build integration

package main

import (
	"bufio"
	"bytes"
	"debug/elf"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockquake/lockquake/internal/tryout"
	"github.com/lockquake/lockquake/internal/wait"
)

// TestAloneClockStopIsUndoneWithoutItsSupervisor kills the supervisor while a server and its monotonic clock stand
// still, and after the heal, while that clock is behind. The agent lets the server go on, and restores its clock. The
// server is in a container, because one of the local provider ends with its supervisor.
func TestAloneClockStopIsUndoneWithoutItsSupervisor(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("looking into processes needs root")
	}
	for _, c := range []struct {
		moment           string
		stopped, patched bool
	}{
		{": installed", true, false},
		{": healed", false, true},
	} {
		t.Run(strings.TrimPrefix(c.moment, ": "), func(t *testing.T) {
			p := begin(t, "run", scenarioFile(t, tryout.Scenario(tryout.Options{
				Name: "stopped", Backend: "redis", For: 60e9, Entries: []tryout.Entry{{
					Fault: "clock-stop", On: "redis-1", At: 500e6, For: 4e9,
				}},
			})), "--provider", "docker")
			p.says(t, c.moment)
			pid, err := strconv.Atoi(inContainer(t, p, "redis-1", "{{.State.Pid}}"))
			if err != nil || pid < 2 {
				t.Fatalf("pid of redis-1: %d, %v", pid, err)
			}
			own, _ := clockCode(os.Getpid())
			code, stopped := clockCode(pid)
			if patched := !bytes.Equal(code, own); stopped != c.stopped || patched != c.patched {
				t.Fatalf("stopped %v and patched %v: this shows nothing", stopped, patched)
			}
			if err := p.cmd.Process.Signal(syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			p.wait(t)
			wait.Until(t, 20*time.Second, "it goes on with the clock of the kernel, or is gone", func() bool {
				code, stopped := clockCode(pid)
				return code == nil || bytes.Equal(code, own) && !stopped
			})
			if code, _ := clockCode(pid); code == nil {
				t.Log("the server was gone before its clock was seen right")
			}
			cleaned(t)
			gone(t, p)
		})
	}
}

// clockCode returns the code of the functions by which a process reads its clocks without the kernel (its vDSO), and
// whether the process is stopped. The code is nil if the process is gone. What the agent wrote behind the functions
// stays, and nothing calls it any more.
func clockCode(pid int) (code []byte, stopped bool) {
	of := func(name string) string { return fmt.Sprintf("/proc/%d/%s", pid, name) }
	stat, err := os.ReadFile(of("stat"))
	maps, err2 := os.ReadFile(of("maps"))
	mem, err3 := os.Open(of("mem"))
	if err != nil || err2 != nil || err3 != nil {
		return nil, false
	}
	defer func() { _ = mem.Close() }()
	for lines := bufio.NewScanner(bytes.NewReader(maps)); lines.Scan(); {
		var from, to int64
		if _, err := fmt.Sscanf(lines.Text(), "%x-%x", &from, &to); err != nil || !strings.HasSuffix(lines.Text(), "[vdso]") {
			continue
		}
		image := make([]byte, to-from)
		if _, err := mem.ReadAt(image, from); err != nil {
			return nil, false
		}
		code = clockFunctions(image)
	}
	return code, bytes.HasPrefix(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" T"))
}

// clockFunctions returns the code of the functions in a vDSO that read clocks.
func clockFunctions(image []byte) (code []byte) {
	f, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		return nil
	}
	symbols, err := f.DynamicSymbols()
	if err != nil {
		return nil
	}
	for _, s := range symbols {
		if slices.Contains([]string{"__vdso_clock_gettime", "__vdso_gettimeofday", "__vdso_time"}, s.Name) {
			code = append(code, image[s.Value:s.Value+s.Size]...)
		}
	}
	return code
}
