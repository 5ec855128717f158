//go:build linux

package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/lockquake/lockquake/internal/agent/proc"
	"github.com/lockquake/lockquake/internal/wait"
	"github.com/lockquake/lockquake/results"
)

// orphan is a node's process whose supervisor can be made to look dead.
type orphan struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *os.File
	*bufio.Reader
}

// raise starts a verb as a node and reads its first line.
func raise(t *testing.T, verb ...string) orphan {
	t.Helper()
	o := orphan{cmd: exec.Command("lockquake", verb...)}
	o.cmd.Stderr = os.Stderr
	var err error
	if o.in, err = o.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := o.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	o.out = out.(*os.File)
	o.Reader = bufio.NewReader(out)
	if err := o.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = o.cmd.Process.Kill(); _ = o.cmd.Wait() })
	o.line(t)
	return o
}

func (o orphan) line(t *testing.T) []byte {
	t.Helper()
	line, err := o.ReadBytes('\n')
	if err != nil {
		t.Fatalf("%v: %v", o.cmd.Args, err)
	}
	return line
}

func (o orphan) tell(t *testing.T, format string, args ...any) {
	t.Helper()
	if _, err := fmt.Fprintf(o.in, format+"\n", args...); err != nil {
		t.Fatal(err)
	}
}

// bereave stops reading, asks for answers, and demands that the process ends by itself. Its input stays open, so only
// its own answers reveal that the supervisor is dead. An answer may still succeed: a child forked by another test
// holds the pipe until it executes its program.
func (o orphan) bereave(t *testing.T, ask string) {
	t.Helper()
	if err := o.out.Close(); err != nil {
		t.Fatal(err)
	}
	late := time.AfterFunc(time.Minute, func() { _ = o.cmd.Process.Kill() })
	defer late.Stop()
	ended := make(chan struct{})
	go func() { _ = o.cmd.Wait(); close(ended) }()
	for asked := false; ; asked = true {
		if _, err := fmt.Fprintln(o.in, ask); err != nil && !asked {
			t.Error(err)
		}
		select {
		case <-ended:
		case <-time.After(100 * time.Millisecond):
			continue
		}
		break
	}
	if !o.cmd.ProcessState.Exited() {
		t.Errorf("%v ended by %v when nobody read its answer", o.cmd.Args, o.cmd.ProcessState)
	}
}

// TestUnreadAnswers sends each kind of process a request, and dies before the answer.
func TestUnreadAnswers(t *testing.T) {
	t.Parallel()
	for _, verb := range [][]string{{"client"}, {"register", "--listen", "127.0.0.1:0"}, {"replica", "--listen", "127.0.0.1:0"}, {"ledger", "postgres"}} {
		t.Run(verb[0], func(t *testing.T) {
			t.Parallel()
			raise(t, append([]string{"node"}, verb...)...).bereave(t, `{"v":1,"type":"command","command":{"id":1,"do":"final"}}`)
		})
	}
}

// TestUnreadAnswerOfTheAgent: an agent that has stopped a process must undo the stop if its next answer is not read.
func TestUnreadAnswerOfTheAgent(t *testing.T) {
	t.Parallel()
	target := exec.Command("sleep", "600")
	if err := target.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = target.Process.Kill(); _ = target.Wait() })
	o := raise(t, "node", "agent")
	o.tell(t, `{"id":1,"do":"own","process":{"pid":%d}}`, target.Process.Pid)
	var own struct {
		Process json.RawMessage
	}
	if err := json.Unmarshal(o.line(t), &own); err != nil {
		t.Fatal(err)
	}
	o.tell(t, `{"id":2,"do":"signal","signal":"STOP","process":%s}`, own.Process)
	o.line(t)
	p, err := proc.Find(target.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	wait.Until(t, time.Minute, "something is stopped, or this shows nothing", func() bool { s, err := p.Inspect(); return err == nil && s.Threads["T"] == 1 })
	o.bereave(t, fmt.Sprintf(`{"id":3,"do":"inspect","process":%s}`, own.Process))
	if s, err := p.Inspect(); err != nil || s.Threads["T"] != 0 {
		t.Errorf("it was left stopped: %+v, %v", s, err)
	}
}

// TestUnreadProgress closes the streams of a run after the first line. The run still ends and is judged.
func TestUnreadProgress(t *testing.T) {
	t.Parallel()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("lockquake", "run", "memory-healthy", "--set", "run.for=300ms")
	cmd.Dir, cmd.Stdout, cmd.Stderr = t.TempDir(), write, write
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = write.Close()
	if _, err := bufio.NewReader(read).ReadString('\n'); err != nil {
		t.Error(err)
	}
	_ = read.Close()
	_ = cmd.Wait()
	if !cmd.ProcessState.Exited() {
		t.Errorf("it ended by %v", cmd.ProcessState)
	}
	if _, err := results.ReadReport(filepath.Join(cmd.Dir, "runs", "memory-healthy", "latest")); err != nil {
		t.Error(err)
	}
}
