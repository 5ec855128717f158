package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"

	"github.com/lockquake/lockquake/chaos/process"
	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/internal/cluster/limits"
	"github.com/lockquake/lockquake/internal/cluster/pipe"
	"github.com/lockquake/lockquake/internal/node"
)

// containerNode drives one node in a container.
type containerNode struct {
	run  *dockerRun
	spec node.Spec
	node *Node
	box  testcontainers.Container
	// limits describes the limits read back from the engine; "" if there are none.
	limits   string
	prepared prepared

	mu  sync.Mutex
	sig signaller // of the last started process
}

// create makes the node's container without starting it.
func (r *dockerRun) create(ctx context.Context, n *Node) (*containerNode, error) {
	argv := n.ContainerCommand()
	if len(argv) == 0 {
		return nil, fmt.Errorf("its command is empty")
	}
	done, err := prepareNode(ctx, r, n, dockerPreparations)
	r.owed.locked(func() { r.owed.unprepare = append(r.owed.unprepare, done.undo) })
	if err != nil {
		return nil, err
	}
	req := testcontainers.ContainerRequest{
		Image: r.images[n.spec.Image], Name: r.name(n.spec.Name), Labels: r.labels(n.spec.Name, n.spec.Role),
		// The image's own entrypoint is replaced: an init or shell in front would take the signals instead.
		Entrypoint: argv[:1], Cmd: argv[1:], Env: envMap(slices.Concat(n.spec.Env, done.env)),
		ConfigModifier: func(c *container.Config) {
			c.Hostname, c.WorkingDir = n.spec.Name, dataDir
			c.Healthcheck = &container.HealthConfig{Test: []string{"NONE"}}
			c.OpenStdin, c.StdinOnce, c.AttachStdin = n.spec.Stdio, n.spec.Stdio, n.spec.Stdio
			if n.spec.Alike {
				c.Hostname = string(n.spec.Role)
			}
		},
		HostConfigModifier: func(h *container.HostConfig) { r.hostConfig(h, n.spec, done) },
		EndpointSettingsModifier: func(e map[string]*network.EndpointSettings) {
			addr, _ := netip.ParseAddr(n.place.Host(n.spec.Name)) // made from a netip.Addr
			e[r.networkName()] = &network.EndpointSettings{
				NetworkID: r.network, IPAMConfig: &network.EndpointIPAMConfig{IPv4Address: addr},
				Aliases: []string{n.spec.Name},
			}
		},
	}
	if !r.near {
		for _, p := range n.spec.Ports {
			req.ExposedPorts = append(req.ExposedPorts, strconv.Itoa(p.Number)+"/tcp")
		}
	}
	box, err := whole(ctx, func(ctx context.Context) (testcontainers.Container,
		error,
	) {
		return r.engine.tc.CreateContainer(ctx, req)
	})
	if box != nil {
		r.owed.locked(func() { r.owed.containers = append(r.owed.containers, box.GetContainerID()) })
	}
	if err != nil {
		return nil, err
	}
	limits, err := limitsOf(ctx, r.engine.api, box.GetContainerID(), n.spec.Limits)
	return &containerNode{run: r, spec: n.spec, node: n, box: box, limits: limits, prepared: done}, err
}

// limitsOf reads the limits of a container back from the engine.
func limitsOf(ctx context.Context, api client.APIClient, id string, want node.Limits) (string, error) {
	if want.None() {
		return "", nil
	}
	info, err := api.ContainerInspect(ctx, id, client.ContainerInspectOptions{})
	if err != nil {
		return "", fmt.Errorf("inspect its container: %w", err)
	}
	h := info.Container.HostConfig
	found := fmt.Sprintf("NanoCpus %d, Memory %d, MemorySwap %d", h.NanoCPUs, h.Memory, h.MemorySwap)
	if h.NanoCPUs != limits.NanoCPUs(want) || h.Memory != want.Memory {
		return "", limits.NotHeld(want, found)
	}
	return want.String() + " (" + found + ")", nil
}

func (r *dockerRun) hostConfig(h *container.HostConfig, spec node.Spec, f prepared) {
	h.NetworkMode = container.NetworkMode(r.networkName())
	h.NanoCPUs, h.Memory, h.MemorySwap = limits.NanoCPUs(spec.Limits), spec.Limits.Memory, spec.Limits.Memory
	if spec.Stdio {
		h.LogConfig = container.LogConfig{Type: "none"} // every event would be written twice
	} else {
		h.LogConfig = container.LogConfig{Type: "json-file", Config: map[string]string{"max-size": "10m"}}
	}
	switch {
	case f.disk != "":
		h.Mounts = append(h.Mounts, diskVolume(f.disk))
	case f.data != "":
		h.Mounts = append(h.Mounts, mount.Mount{Type: mount.TypeBind, Source: f.data, Target: dataDir})
	case spec.Role == node.Server:
		// A volume is a plain directory of the engine's machine: no overlay file system between the service and fsync.
		h.Mounts = append(h.Mounts, mount.Mount{Type: mount.TypeVolume, Target: dataDir})
	}
	h.PortBindings = network.PortMap{}
	for _, p := range spec.Ports {
		if port, err := network.ParsePort(strconv.Itoa(p.Number) + "/tcp"); err == nil {
			h.PortBindings[port] = []network.PortBinding{{HostIP: netip.MustParseAddr("127.0.0.1")}}
		}
	}
	if remote(r.engine.api.DaemonHost()) {
		h.PortBindings = network.PortMap{}
	}
}

// remote reports whether published ports appear on another machine.
func remote(daemon string) bool { return !strings.HasPrefix(daemon, "unix:") }

func envMap(env []string) map[string]string {
	out := make(map[string]string, len(env))
	for _, e := range env {
		key, value, _ := strings.Cut(e, "=")
		out[key] = value
	}
	return out
}

// killedStatus is the exit status of a container whose process a SIGKILL ended.
const killedStatus = 128 + 9

// start attaches before it starts, so that no byte is lost, and watches for the end of the process.
func (c *containerNode) start(ctx context.Context) (Stdio, *ending, error) {
	id := c.box.GetContainerID()
	if err := runHook(ctx, c.prepared.before); err != nil {
		return Stdio{}, nil, err
	}
	logFile, err := c.run.logs.Writer(c.spec.Name)
	if err != nil {
		return Stdio{}, nil, err
	}
	s, err := c.run.engine.attach(ctx, attachment{
		container: id, stdio: c.spec.Stdio, batched: !remote(c.run.engine.api.DaemonHost()), log: logFile,
	})
	if err != nil {
		_ = logFile.Close()
		return Stdio{}, nil, err
	}
	waitCtx, stop := context.WithCancel(context.WithoutCancel(ctx))
	wait := c.run.engine.api.ContainerWait(waitCtx, id,
		client.ContainerWaitOptions{Condition: container.WaitConditionNextExit})
	if err := c.startBox(ctx); err != nil {
		stop()
		s.close()
		return Stdio{}, nil, err
	}
	over := newEnding()
	go func() {
		defer close(over.seen)
		defer stop()
		select {
		case r := <-wait.Result:
			over.how = fmt.Sprintf("exit status %d", r.StatusCode)
			over.killed = r.StatusCode == killedStatus
		case err := <-wait.Error:
			if waitCtx.Err() == nil {
				c.run.engine.log.Warn("the engine lost a container", "node", c.spec.Name, "err", err)
			}
		}
	}()
	c.run.owed.atClose(c.spec.Name, func() { stop(); s.close(); <-over.seen })
	sig, err := c.findSignaller(ctx, id)
	if err != nil {
		return Stdio{}, nil, err
	}
	c.mu.Lock()
	c.sig = sig
	c.mu.Unlock()
	return s.Stdio, over, nil
}

// startBox starts the container when its turn has come.
func (c *containerNode) startBox(ctx context.Context) error {
	if c.run.starting != nil {
		select {
		case c.run.starting <- struct{}{}:
			defer func() { <-c.run.starting }()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	for try := 1; ; try++ {
		err := c.box.Start(ctx)
		if err == nil || c.run.starting == nil || try == attachTries || !notAttached(err) {
			return err
		}
		c.run.engine.log.Warn("a container is started again: the swarm's manager gave it no address in time", "node", c.spec.Name, "try", try, "err", err)
	}
}

// attachTries is how often to start a container in a swarm whose engine gives up waiting for the manager, as on a busy
// machine.
const attachTries = 3

// notAttached reports whether a container did not start because the manager of the swarm did not give it an address in
// time.
func notAttached(err error) bool {
	return strings.Contains(err.Error(), "attaching to network failed") ||
		strings.Contains(err.Error(), "ttach to network")
}

// findSignaller looks up the process that was just started; a later lookup could find another one.
func (c *containerNode) findSignaller(ctx context.Context, id string) (signaller, error) {
	info, err := c.run.engine.api.ContainerInspect(ctx, id, client.ContainerInspectOptions{})
	if err != nil {
		return nil, fmt.Errorf("inspect its container: %w", err)
	}
	byEngine := throughEngine{api: c.run.engine.api, container: id, pid: info.Container.State.Pid, why: c.run.agentErr}
	if c.run.agent == nil || byEngine.pid < 2 { // a container that ended at once has pid 0
		return byEngine, nil
	}
	p, err := c.run.agent.Own(ctx, byEngine.pid, false)
	if err != nil {
		byEngine.why = err
		c.run.engine.log.Warn("the agent does not see the node's process, signals go through the engine",
			"node", c.spec.Name, "err", err)
		return byEngine, nil
	}
	return throughAgent{agent: c.run.agent, process: p, without: byEngine}, nil
}

func (c *containerNode) signaller(context.Context) (signaller, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sig, nil
}

func (c *containerNode) dial(ctx context.Context, port, address string) (net.Conn, error) {
	if c.run.reach != nil {
		return c.run.reach(ctx, address)
	}
	if !c.run.near {
		var err error
		if address, err = c.published(ctx, port); err != nil {
			return nil, err
		}
	}
	return dialer.DialContext(ctx, "tcp", address)
}

// published asks the engine where it publishes the port now: it changes with every start.
func (c *containerNode) published(ctx context.Context, port string) (string, error) {
	host, err := c.run.engine.tc.DaemonHost(ctx)
	if err != nil {
		return "", fmt.Errorf("find the engine's host: %w", err)
	}
	i := slices.IndexFunc(c.spec.Ports, func(p node.Port) bool { return p.Name == port })
	mapped, err := c.box.MappedPort(ctx, strconv.Itoa(c.spec.Ports[i].Number)+"/tcp")
	if err != nil {
		return "", fmt.Errorf("find the published port %s of %s: %w", port, c.spec.Name, err)
	}
	if host == "localhost" {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, strconv.Itoa(int(mapped.Num()))), nil
}

// attachment asks for the streams of a container about to be started.
type attachment struct {
	container string
	stdio     bool // input and output are a control stream
	batched   bool // it may send many small writes, over a local socket
	log       io.WriteCloser
}

// attached is the supervisor's end of a container's streams.
type attached struct {
	Stdio
	close func()
}

// attach connects to the streams. Output that is not a control stream goes to the log, which is closed at their end.
func (d *docker) attach(ctx context.Context, a attachment) (attached, error) {
	hijacked, err := d.api.ContainerAttach(context.WithoutCancel(ctx), a.container, client.ContainerAttachOptions{
		Stream: true, Stdin: a.stdio, Stdout: true, Stderr: true,
	})
	if err != nil {
		return attached{}, fmt.Errorf("attach to its streams: %w", err)
	}
	out := attached{close: hijacked.Close}
	var stdout io.Writer = a.log
	ended := func(error) {}
	if a.stdio {
		reader, writer := io.Pipe()
		stdout = writer
		ended = func(err error) { _ = writer.CloseWithError(err) }
		out.Stdio = Stdio{In: containerInput{hijacked.HijackedResponse}, Out: reader}
		out.close = func() { hijacked.Close(); _ = reader.Close() }
	}
	var from io.Reader = hijacked.Reader
	if a.batched {
		from = pipe.Batched(from)
	}
	go func() {
		_, err := stdcopy.StdCopy(stdout, a.log, from)
		ended(err)
		_ = a.log.Close()
	}()
	return out, nil
}

// containerInput is the standard input of a container: closing it leaves the output open.
type containerInput struct{ client.HijackedResponse }

func (c containerInput) Write(b []byte) (int, error) { return c.Conn.Write(b) }
func (c containerInput) Close() error                { return c.CloseWrite() }

// used asks the engine, which reads the container's control group.
func (c *containerNode) used(ctx context.Context) (time.Duration, error) {
	res, err := c.run.engine.api.ContainerStats(ctx, c.box.GetContainerID(), client.ContainerStatsOptions{})
	if err != nil {
		return 0, fmt.Errorf("statistics of %s: %w", c.spec.Name, err)
	}
	defer res.Body.Close()
	var s container.StatsResponse
	if err := json.NewDecoder(res.Body).Decode(&s); err != nil {
		return 0, fmt.Errorf("statistics of %s: %w", c.spec.Name, err)
	}
	return time.Duration(s.CPUStats.CPUUsage.TotalUsage), nil
}

// freeze makes the engine pause the container. The agent gets its order first, so that it thaws the container if the
// supervisor dies; if it cannot, `clean` removes the container.
func (c *containerNode) freeze(ctx context.Context) error {
	if err := c.node.Signals.freezing.give(ctx, process.FreezeArgs{Engine: true}); err != nil {
		c.run.engine.log.Warn("the agent could not thaw the container by itself", "node", c.spec.Name, "err", err)
	}
	_, done := clock.Act(ctx)
	defer done()
	_, err := c.run.engine.api.ContainerPause(ctx, c.box.GetContainerID(), client.ContainerPauseOptions{})
	if err != nil {
		return fmt.Errorf("pause %s by the engine: %w", c.spec.Name, err)
	}
	return nil
}

func (c *containerNode) thaw(ctx context.Context) error {
	_, done := clock.Act(ctx)
	_, err := c.run.engine.api.ContainerUnpause(ctx, c.box.GetContainerID(), client.ContainerUnpauseOptions{})
	done()
	if err != nil {
		if paused, said := c.paused(ctx); said == nil && !paused {
			err = nil // it has ended, or was never paused
		} else {
			err = fmt.Errorf("unpause %s by the engine: %w", c.spec.Name, err)
		}
	}
	return errors.Join(err, c.node.Signals.freezing.undo(ctx))
}

// paused asks the engine.
func (c *containerNode) paused(ctx context.Context) (bool, error) {
	info, err := c.run.engine.api.ContainerInspect(ctx, c.box.GetContainerID(), client.ContainerInspectOptions{})
	if err != nil {
		return false, fmt.Errorf("inspect the container of %s: %w", c.spec.Name, err)
	}
	return info.Container.State.Paused, nil
}

func (c *containerNode) frozen(ctx context.Context) (process.Frozen, error) {
	paused, err := c.paused(ctx)
	return process.Frozen{
		Frozen: paused, Unseen: "known only to the engine",
		Said: fmt.Sprintf("paused: %t, according to the engine", paused), Time: clock.Now(),
	}, err
}
