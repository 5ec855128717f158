package agent_test

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/lockquake/lockquake/internal/agent"
	"github.com/lockquake/lockquake/internal/agent/agenttest"
	"github.com/lockquake/lockquake/internal/agent/proc"
	"github.com/lockquake/lockquake/internal/node"
)

func TestStopIsSeenAndHealedWhenTheStreamEnds(t *testing.T) {
	c, ended := agenttest.Serve(t)
	ctx := context.Background()
	p, err := c.Own(ctx, agenttest.Sleeper(t).Process.Pid, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Signal(ctx, p, "STOP"); err != nil {
		t.Fatal(err)
	}
	agenttest.Until(t, p, "stopped", agenttest.Stopped)
	if s, err := c.Inspect(ctx, p); err != nil || !agenttest.Stopped(s) || s.Time == 0 {
		t.Fatalf("the agent sees %+v, %v", s, err)
	}
	agenttest.Ended(t, c, ended)
	agenttest.Until(t, p, "running again", agenttest.Running)
	if _, err := c.Inspect(ctx, p); !errors.Is(err, agent.ErrEnded) {
		t.Errorf("a call after the end gives %v", err)
	}
}

func TestKillsItsChargesWhenTheStreamEnds(t *testing.T) {
	c, _ := agenttest.Serve(t)
	ctx := context.Background()
	killed, spared := agenttest.Sleeper(t), agenttest.Sleeper(t)
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
	agenttest.Until(t, pk, "dead", func(s node.State) bool { return s.PID == 0 || s.Threads["Z"] > 0 })
	agenttest.Until(t, ps, "alive", agenttest.Running)
}

func TestHealsWhenCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- agent.Main(ctx, inR, outW, nil) }()
	c, err := agent.Connect(ctx, inW, outR)
	if err != nil {
		t.Fatal(err)
	}
	p, err := c.Own(ctx, agenttest.Sleeper(t).Process.Pid, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Signal(ctx, p, "STOP"); err != nil {
		t.Fatal(err)
	}
	agenttest.Until(t, p, "stopped", agenttest.Stopped)
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	agenttest.Until(t, p, "running again", agenttest.Running)
	_ = outW.Close()
	_ = inW.Close()
}

func TestRefusesWhatDoesNotBelongToTheRun(t *testing.T) {
	c, _ := agenttest.Serve(t)
	ctx := context.Background()
	for _, pid := range []int{-1, 0, 1, os.Getpid()} {
		if _, err := c.Own(ctx, pid, true); err == nil {
			t.Errorf("pid %d was accepted as a target", pid)
		}
	}
	stranger, err := proc.Find(agenttest.Sleeper(t).Process.Pid)
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
	agenttest.Until(t, p, "running", agenttest.Running)
}

func TestSeesAProcessEnd(t *testing.T) {
	c, _ := agenttest.Serve(t)
	ctx := context.Background()
	cmd := agenttest.Sleeper(t)
	p, err := c.Own(ctx, cmd.Process.Pid, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Signal(ctx, p, "KILL"); err != nil {
		t.Fatal(err)
	}
	agenttest.Until(t, p, "a zombie", func(s node.State) bool { return s.Threads["Z"] == 1 && len(s.Threads) == 1 })
	_ = cmd.Wait()
	s, err := c.Inspect(ctx, p)
	if err != nil || s.PID != 0 {
		t.Errorf("an ended process is seen as %+v, %v", s, err)
	}
	if err := c.Signal(ctx, p, "CONT"); !errors.Is(err, proc.ErrNoProcess) {
		t.Errorf("a signal to an ended process gives %v", err)
	}
	reused := proc.Process{PID: os.Getpid(), Start: p.Start}
	if s, err := reused.Inspect(); err != nil || s.PID != 0 {
		t.Errorf("a pid in other hands is seen as %+v, %v", s, err)
	}
}

// TestOrders carries out an order and undoes it by its key and by the end of the stream.
func TestOrders(t *testing.T) {
	undone := make(chan string, 4)
	do := agent.Takes(func(_ context.Context, c agent.Call, name string) (any, error) {
		c.Stand(func(context.Context) (any, error) { undone <- name; return "undone " + name, nil })
		if name == "half" {
			return nil, errors.New("half done")
		}
		return map[string]int{"pid": c.Process.PID}, nil
	})
	c, ended := agenttest.Serve(t, agent.Mechanism{Orders: map[string]agent.Handler{
		"test": {Do: do}, "never": {Do: do, Can: func() error { return errors.New("not on a Monday") }},
	}})
	ctx := t.Context()
	p, err := c.Own(ctx, agenttest.Sleeper(t).Process.Pid, false)
	if err != nil {
		t.Fatal(err)
	}
	var answer struct{ PID int }
	for _, key := range []string{"a", "b"} {
		if err := c.Order(ctx, agent.Order{Do: "test", Process: p, Key: key, Args: key}, &answer); err != nil || answer.PID != p.PID {
			t.Fatalf("%+v, %v", answer, err)
		}
	}
	if err := c.Order(ctx, agent.Order{Do: "test", Process: p, Key: "c", Args: "half"}, nil); err == nil {
		t.Error("no error from an order that was half done")
	}
	if err := c.Order(ctx, agent.Order{Do: "test", Process: proc.Process{PID: p.PID, Start: 1}, Key: "d", Args: "d"}, nil); err == nil {
		t.Error("an order on a process that is not of the run")
	}
	for do, want := range map[string]string{"test": "", "never": "not on a Monday", "unheard": `unknown order "unheard"`} {
		if err := c.Supports(ctx, do); err == nil && want != "" || err != nil && err.Error() != want {
			t.Errorf("it supports %s: %v, want %q", do, err, want)
		}
	}
	if keys, err := c.Standing(ctx); err != nil || strings.Join(keys, " ") != "a b c" {
		t.Errorf("there stands %v, %v", keys, err)
	}
	var said string
	if err := c.Undo(ctx, "a", &said); err != nil || said != "undone a" || <-undone != "a" {
		t.Errorf("undo: %q, %v", said, err)
	}
	if err := c.Undo(ctx, "a", nil); err == nil {
		t.Error("undone a second time")
	}
	agenttest.Ended(t, c, ended)
	if first, second := <-undone, <-undone; first != "half" || second != "b" {
		t.Errorf("undone at the end: %s, then %s", first, second)
	}
}
