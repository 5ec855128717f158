package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"

	"github.com/lockquake/lockquake/chaos/disk"
	"github.com/lockquake/lockquake/chaos/links"
	"github.com/lockquake/lockquake/internal/agent"
	"github.com/lockquake/lockquake/internal/cluster/imagestore"
	"github.com/lockquake/lockquake/internal/cluster/nodelog"
	"github.com/lockquake/lockquake/internal/cluster/owner"
	"github.com/lockquake/lockquake/internal/cluster/state"
	"github.com/lockquake/lockquake/internal/node"
)

// agentCapabilities are all the capabilities of the agent, which is never privileged. KILL signals processes of other
// users, and DAC_OVERRIDE empties their data directories. SYS_NICE lets it act in time on a busy machine. SYS_CHROOT
// enters the file system of a target. The others are for link and clock faults.
var agentCapabilities = []string{
	"SYS_ADMIN", "NET_ADMIN", "SYS_PTRACE", "KILL", "DAC_READ_SEARCH", "DAC_OVERRIDE",
	"SYS_NICE", "SYS_CHROOT",
}

// startAgent starts the run's agent in the pid namespace of the engine's machine and waits for its greeting.
func (r *dockerRun) startAgent(ctx context.Context) error {
	if r.engine.options.noAgent {
		return errors.New("switched off")
	}
	startCtx, cancel := context.WithTimeout(ctx, agentStartTimeout)
	defer cancel()
	box, s, err := helper{name: r.agentName, kind: "agent", host: func(h *container.HostConfig) {
		h.PidMode = "host"
		h.CgroupnsMode = container.CgroupnsModeHost // otherwise the groups of its targets have no names there
		h.CapAdd = agentCapabilities
		// AppArmor's profile for containers forbids writing below /proc. The default seccomp filter adapts to the
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
	info, err := r.engine.api.ContainerInspect(startCtx, box, client.ContainerInspectOptions{})
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
	host     func(*container.HostConfig) // adds what else it needs; may be nil
}

// start starts a helper of a run with only the rights and networks that it names. It returns the container's id.
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
		return r.engine.tc.CreateContainer(ctx, req)
	})
	if box == nil {
		return "", attached{}, fmt.Errorf("make the container of %s: %w", h.name, err)
	}
	id := box.GetContainerID()
	r.owed.locked(func() { r.owed.helpers = append(r.owed.helpers, id) })
	for _, more := range h.networks[min(1, len(h.networks)):] {
		if err == nil {
			_, err = r.engine.api.NetworkConnect(ctx, more, client.NetworkConnectOptions{Container: id})
		}
	}
	if err != nil {
		return id, attached{}, fmt.Errorf("make the container of %s: %w", h.name, err)
	}
	logFile, err := r.logs.Writer(h.name)
	if err != nil {
		return id, attached{}, err
	}
	s, err := r.engine.attach(ctx, attachment{container: id, stdio: true, log: logFile})
	if err != nil {
		_ = logFile.Close()
		return id, attached{}, err
	}
	r.owed.atClose(h.name, s.close)
	if err := box.Start(ctx); err != nil {
		return id, attached{}, fmt.Errorf("start %s: %w", h.name, err)
	}
	return id, s, nil
}

// samePID returns an error if engine and agent see the agent under different pids. Then their pid namespaces differ,
// and the engine's pid of a node would be another process for the agent.
func samePID(own int, engine *container.State) error {
	if engine == nil || engine.Pid != own {
		said := 0
		if engine != nil {
			said = engine.Pid
		}
		return fmt.Errorf("it does not see the engine's pids: its own pid is %d, but %d for the engine", own, said)
	}
	return nil
}

// withAgent starts an agent outside any run, and removes it.
func (d *docker) withAgent(ctx context.Context, ask func(*agent.Client) error) error {
	dir, remove, err := state.Scratch("probe")
	if err != nil {
		return err
	}
	defer func() { _ = remove() }()
	logs, err := nodelog.Open(dir)
	if err != nil {
		return err
	}
	r := &dockerRun{
		engine: d, owner: owner.Self("probe", false),
		request: Request{Run: fmt.Sprintf("p%x", os.Getpid()), Agent: true}, logs: logs,
	}
	defer func() { _ = (&Cluster{close: r.close}).Close(ctx) }()
	if err := r.resolveImages(ctx); err != nil {
		return err
	}
	if err := r.startAgent(ctx); err != nil {
		return err
	}
	return ask(r.agent)
}

// agentSupports returns why an agent on the engine's machine cannot carry out an order; nil if it can.
func (d *docker) agentSupports(do string) error {
	ctx, cancel := context.WithTimeout(context.Background(), agentStartTimeout+engineTimeout)
	defer cancel()
	return d.withAgent(ctx, func(a *agent.Client) error { return a.Supports(ctx, do) })
}

// askEngines makes an agent try which engines shape links on the engine's machine.
func (d *docker) askEngines() (links.Engines, error) {
	ctx, cancel := context.WithTimeout(context.Background(), agentStartTimeout+engineTimeout)
	defer cancel()
	var e links.Engines
	err := d.withAgent(ctx, func(a *agent.Client) error { return a.Order(ctx, agent.Order{Do: links.DoEngines}, &e) })
	if err != nil {
		return e, fmt.Errorf("ask an agent which engines shape links: %w", err)
	}
	return e, nil
}
