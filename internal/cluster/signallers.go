package cluster

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/internal/agent"
	"github.com/lockquake/lockquake/internal/agent/proc"
	"github.com/lockquake/lockquake/internal/clock"
)

// watching is a signaller that inspects the process right after a signal.
type watching interface {
	signalSeen(ctx context.Context, name string) (*chaos.ProcessState, error)
}

// sent sends a signal, and returns the state right after it, if known.
func sent(ctx context.Context, s signaller, signal string) (*chaos.ProcessState, error) {
	ctx, done := clock.Act(ctx)
	defer done()
	if w, ok := s.(watching); ok {
		return w.signalSeen(ctx, signal)
	}
	return nil, s.signal(ctx, signal)
}

// throughAgent signals through the run's agent, and through `without` once the agent is gone.
type throughAgent struct {
	agent   *agent.Client
	process proc.Process
	without signaller
}

func (t throughAgent) inspect(ctx context.Context) (chaos.ProcessState, error) {
	s, err := t.agent.Inspect(ctx, t.process)
	if errors.Is(err, agent.ErrEnded) {
		return t.without.inspect(ctx)
	}
	return s, err
}

func (t throughAgent) signal(ctx context.Context, name string) error {
	_, err := t.signalSeen(ctx, name)
	return err
}

func (t throughAgent) signalSeen(ctx context.Context, name string) (*chaos.ProcessState, error) {
	s, err := t.agent.SignalSeen(ctx, t.process, name)
	if errors.Is(err, agent.ErrEnded) {
		return nil, t.without.signal(ctx, name)
	}
	return s, err
}

// direct signals a process of this machine and pid namespace from the supervisor itself.
type direct struct {
	process proc.Process
	why     error // why there is no agent
}

func (d direct) agentless() error { return d.why }

func (d direct) inspect(context.Context) (chaos.ProcessState, error) {
	return d.process.Inspect()
}

func (d direct) signal(_ context.Context, name string) error { return d.process.Signal(name) }

// throughEngine signals and inspects with the engine's own calls. That is slower and reaches only process 1 of a
// container, but needs nothing in or beside the target.
type throughEngine struct {
	api       client.APIClient
	container string
	pid       int
	why       error // why there is no agent
}

func (t throughEngine) agentless() error { return t.why }

func (t throughEngine) signal(ctx context.Context, name string) error {
	_, err := t.api.ContainerKill(ctx, t.container, client.ContainerKillOptions{Signal: "SIG" + name})
	if cerrdefs.IsConflict(err) || cerrdefs.IsNotFound(err) {
		return fmt.Errorf("%w: %w", proc.ErrNoProcess, err)
	}
	return err
}

// inspect asks the engine's ps, which runs outside the container.
func (t throughEngine) inspect(ctx context.Context) (chaos.ProcessState, error) {
	top, err := t.api.ContainerTop(ctx, t.container,
		client.ContainerTopOptions{Arguments: []string{"-eLo", "pid,lwp,stat"}})
	if err != nil {
		info, err2 := t.api.ContainerInspect(ctx, t.container, client.ContainerInspectOptions{})
		if cerrdefs.IsNotFound(err2) || err2 == nil && info.Container.State.Pid != t.pid {
			return chaos.ProcessState{Time: clock.Now()}, nil
		}
		return chaos.ProcessState{}, fmt.Errorf("ask the engine for its threads: %w", err)
	}
	return threadStates(t.pid, top.Titles, top.Processes)
}

// threadStates counts the threads of one process in a table of the engine's ps.
func threadStates(pid int, titles []string, rows [][]string) (chaos.ProcessState, error) {
	column := map[string]int{"PID": -1, "STAT": -1}
	for i, title := range titles {
		column[strings.ToUpper(title)] = i
	}
	p, s := column["PID"], column["STAT"]
	if p < 0 || s < 0 {
		return chaos.ProcessState{}, fmt.Errorf("the engine's ps tells %v, without PID and STAT", titles)
	}
	state := chaos.ProcessState{Time: clock.Now()}
	for _, row := range rows {
		if len(row) <= max(p, s) || row[p] != strconv.Itoa(pid) || row[s] == "" {
			continue
		}
		if state.Threads == nil {
			state.PID, state.Threads = pid, make(map[string]int, 2)
		}
		state.Threads[row[s][:1]]++
	}
	return state, nil
}

// agentStartTimeout bounds the start of the agent. An engine under load took 20 s to start a container, and a run
// without its agent proves nothing. So the limit is that for a server.
const agentStartTimeout = time.Minute

// errAgentNotNeeded is why a run without orders has no agent.
var errAgentNotNeeded = errors.New("no scenario of this run needs it")
