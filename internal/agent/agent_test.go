package agent

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"
)

// inMemory serves an agent from a goroutine and returns the supervisor's end and a channel with Main's result.
func inMemory(t *testing.T) (*Client, <-chan error) {
	t.Helper()
	if err := Supported(); err != nil {
		t.Skip(err)
	}
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := Main(t.Context(), inR, outW)
		_ = outW.Close()
		ended <- err
	}()
	c, err := Connect(t.Context(), inW, outR)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c, ended
}

func sleeper(t *testing.T) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd
}

// until polls what is seen of the process without the agent.
func until(t *testing.T, p Process, what string, ok func(State) bool) {
	t.Helper()
	var last State
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		s, err := p.Inspect()
		if err != nil {
			t.Fatal(err)
		}
		if last = s; ok(s) {
			return
		}
	}
	t.Fatalf("not %s within 2 s: %+v", what, last)
}

func stopped(s State) bool { return s.PID != 0 && len(s.Threads) == 1 && s.Threads["T"] > 0 }
func running(s State) bool { return s.PID != 0 && s.Threads["T"] == 0 && s.Threads["Z"] == 0 }

func TestStopIsSeenAndHealedWhenTheStreamEnds(t *testing.T) {
	c, ended := inMemory(t)
	ctx := context.Background()
	p, err := c.Own(ctx, sleeper(t).Process.Pid, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Signal(ctx, p, "STOP"); err != nil {
		t.Fatal(err)
	}
	until(t, p, "stopped", stopped)
	if s, err := c.Inspect(ctx, p); err != nil || !stopped(s) || s.Time == 0 {
		t.Fatalf("the agent sees %+v, %v", s, err)
	}
	begin := time.Now()
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	until(t, p, "running again", running)
	if d := time.Since(begin); d > 2*time.Second {
		t.Errorf("healed only after %v", d)
	}
	if _, err := c.Inspect(ctx, p); !errors.Is(err, ErrEnded) {
		t.Errorf("a call after the end gives %v", err)
	}
}

func TestKillsItsChargesWhenTheStreamEnds(t *testing.T) {
	c, _ := inMemory(t)
	ctx := context.Background()
	killed, spared := sleeper(t), sleeper(t)
	pk, err := c.Own(ctx, killed.Process.Pid, true)
	if err != nil {
		t.Fatal(err)
	}
	ps, err := c.Own(ctx, spared.Process.Pid, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Signal(ctx, pk, "STOP"); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	until(t, pk, "dead", func(s State) bool { return s.PID == 0 || s.Threads["Z"] > 0 })
	until(t, ps, "alive", running)
}

func TestHealsWhenCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- Main(ctx, inR, outW) }()
	c, err := Connect(ctx, inW, outR)
	if err != nil {
		t.Fatal(err)
	}
	p, err := c.Own(ctx, sleeper(t).Process.Pid, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Signal(ctx, p, "STOP"); err != nil {
		t.Fatal(err)
	}
	until(t, p, "stopped", stopped)
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	until(t, p, "running again", running)
	_ = outW.Close()
	_ = inW.Close()
}

func TestRefusesWhatDoesNotBelongToTheRun(t *testing.T) {
	c, _ := inMemory(t)
	ctx := context.Background()
	for _, pid := range []int{-1, 0, 1, os.Getpid()} {
		if _, err := c.Own(ctx, pid, true); err == nil {
			t.Errorf("pid %d was accepted as a target", pid)
		}
	}
	stranger, err := Find(sleeper(t).Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Signal(ctx, stranger, "STOP"); err == nil {
		t.Error("a process that is not the run's was signalled")
	}
	p, err := c.Own(ctx, stranger.PID, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Signal(ctx, p, "WINCH"); err == nil {
		t.Error("an unknown signal was accepted")
	}
	until(t, p, "running", running)
}

func TestSeesAProcessEnd(t *testing.T) {
	c, _ := inMemory(t)
	ctx := context.Background()
	cmd := sleeper(t)
	p, err := c.Own(ctx, cmd.Process.Pid, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Signal(ctx, p, "KILL"); err != nil {
		t.Fatal(err)
	}
	until(t, p, "a zombie", func(s State) bool { return s.Threads["Z"] == 1 && len(s.Threads) == 1 })
	_ = cmd.Wait()
	s, err := c.Inspect(ctx, p)
	if err != nil || s.PID != 0 {
		t.Errorf("an ended process is seen as %+v, %v", s, err)
	}
	if err := c.Signal(ctx, p, "CONT"); !errors.Is(err, ErrNoProcess) {
		t.Errorf("a signal to an ended process gives %v", err)
	}
	reused := Process{PID: os.Getpid(), Start: p.Start}
	if s, err := reused.Inspect(); err != nil || s.PID != 0 {
		t.Errorf("a pid in other hands is seen as %+v, %v", s, err)
	}
}

func TestAListThatNeverSettlesIsMarked(t *testing.T) {
	reads := 0
	never := func() (map[string]int, bool, error) { reads++; return map[string]int{"T": 3}, false, nil }
	got, err := whole(never)
	if err != nil || got["T"] != 3 || got[Unseen] != 1 || reads < 2 {
		t.Errorf("after %d reads: %v, %v", reads, got, err)
	}
	reads = 0
	later := func() (map[string]int, bool, error) { reads++; return map[string]int{"T": reads}, reads == 3, nil }
	if got, err := whole(later); err != nil || len(got) != 1 || got["T"] != 3 {
		t.Errorf("a list that settles at the third look: %v, %v", got, err)
	}
}

func TestCountsEveryThread(t *testing.T) {
	self, err := Find(os.Getpid())
	if err != nil {
		t.Skip(err)
	}
	s, err := self.Inspect()
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, k := range s.Threads {
		n += k
	}
	if n < 2 {
		t.Errorf("a Go program has several threads, seen: %v", s.Threads)
	}
}
