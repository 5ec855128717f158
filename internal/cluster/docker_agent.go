package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"

	"github.com/lockquake/lockquake/chaos/disk"
	"github.com/lockquake/lockquake/internal/agent"
	"github.com/lockquake/lockquake/internal/cluster/imagestore"
	"github.com/lockquake/lockquake/internal/node"
)

// agentCapabilities is all that the agent gets; it is never privileged. KILL sends signals to processes of other
// users, DAC_OVERRIDE empties their data directories, and SYS_NICE lets it act in time on a machine that its targets
// keep busy; with SYS_CHROOT it enters the file system of a target; the others are for link and clock faults.
var agentCapabilities = []string{
	"SYS_ADMIN", "NET_ADMIN", "SYS_PTRACE", "KILL", "DAC_READ_SEARCH", "DAC_OVERRIDE",
	"SYS_NICE", "SYS_CHROOT",
}

// agentStartTimeout bounds the start of the agent. An engine under load took 20 s to start a container, and a run
// without its agent proves nothing: so it is as patient as the start of a server.
const agentStartTimeout = time.Minute

// errAgentNotNeeded is why a run that orders nothing has no agent.
var errAgentNotNeeded = errors.New("no scenario of this run needs it")

// startAgent starts the run's agent in the pid namespace of the engine's machine and waits for its greeting.
func (r *dockerRun) startAgent(ctx context.Context) error {
	if r.options.noAgent {
		return errors.New("switched off")
	}
	startCtx, cancel := context.WithTimeout(ctx, agentStartTimeout)
	defer cancel()
	box, s, err := helper{name: r.agentName, kind: "agent", host: func(h *container.HostConfig) {
		h.PidMode = "host"
		h.CgroupnsMode = container.CgroupnsModeHost // else the groups of its targets have no names there
		h.CapAdd = agentCapabilities
		// AppArmor's profile for containers forbids writing below /proc; the default seccomp filter opens with the
		// capabilities and stays.
		h.SecurityOpt = []string{"apparmor=unconfined", "no-new-privileges"}
		if slices.ContainsFunc(r.request.Specs,
			func(s node.Spec) bool { return slices.Contains(s.Preparations, disk.LoopDisk) }) {
			disksForAgent(h)
		}
	}}.start(startCtx, r)
	if err != nil {
		return err
	}
	a, err := agent.Connect(startCtx, s.In, s.Out)
	if err != nil {
		return err
	}
	info, err := r.api.ContainerInspect(startCtx, box, client.ContainerInspectOptions{})
	if err != nil {
		err = fmt.Errorf("inspect the agent's container: %w", err)
	} else {
		err = samePID(a.PID(), info.Container.State)
	}
	if err != nil {
		return errors.Join(err, a.Close())
	}
	r.agent = a
	return nil
}

// helper is a container of our own binary that serves the supervisor over its standard streams.
type helper struct {
	name     string
	kind     string // of lockquake's own nodes
	networks []string
	host     func(*container.HostConfig) // says what it needs beside; may be nil
}

// start starts a helper of a run, which may do nothing and reach nothing but what it says. It returns the container's
// id.
func (h helper) start(ctx context.Context, r *dockerRun) (string, attached, error) {
	req := testcontainers.ContainerRequest{
		Image: r.images[node.SelfProgram], Name: r.name(h.name), Labels: r.labels(h.name, node.Role(h.kind)),
		Entrypoint: []string{imagestore.SelfPath}, Cmd: node.Own(h.kind)[1:],
		ConfigModifier: func(c *container.Config) {
			c.OpenStdin, c.StdinOnce, c.AttachStdin = true, true, true
		},
		HostConfigModifier: func(c *container.HostConfig) {
			c.NetworkMode, c.CapDrop = "none", []string{"ALL"}
			if len(h.networks) > 0 {
				c.NetworkMode = container.NetworkMode(h.networks[0])
			}
			c.ReadonlyRootfs, c.AutoRemove = true, true
			c.LogConfig = container.LogConfig{Type: "none"}
			if h.host != nil {
				h.host(c)
			}
		},
	}
	box, err := whole(ctx, func(ctx context.Context) (testcontainers.Container,
		error,
	) {
		return r.tc.CreateContainer(ctx, req)
	})
	if box == nil {
		return "", attached{}, fmt.Errorf("make the container of %s: %w", h.name, err)
	}
	id := box.GetContainerID()
	r.locked(func() { r.helpers = append(r.helpers, id) })
	for _, more := range h.networks[min(1, len(h.networks)):] {
		if err == nil {
			_, err = r.api.NetworkConnect(ctx, more, client.NetworkConnectOptions{Container: id})
		}
	}
	if err != nil {
		return id, attached{}, fmt.Errorf("make the container of %s: %w", h.name, err)
	}
	logFile, err := r.logs.Writer(h.name)
	if err != nil {
		return id, attached{}, err
	}
	s, err := r.attach(ctx, attachment{container: id, stdio: true, log: logFile})
	if err != nil {
		_ = logFile.Close()
		return id, attached{}, err
	}
	r.atClose(h.name, s.close)
	if err := box.Start(ctx); err != nil {
		return id, attached{}, fmt.Errorf("start %s: %w", h.name, err)
	}
	return id, s, nil
}

// samePID tells whether engine and agent call the agent by the same pid. Where they do not, they look at different pid
// namespaces, and the engine's pid of a node would be some other process to the agent.
func samePID(own int, engine *container.State) error {
	if engine == nil || engine.Pid != own {
		said := 0
		if engine != nil {
			said = engine.Pid
		}
		return fmt.Errorf("it does not see the engine's pids: it is %d to itself and %d to the engine", own, said)
	}
	return nil
}
