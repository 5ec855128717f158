package cluster

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/lockquake/lockquake/chaos/links"
	"github.com/lockquake/lockquake/internal/agent"
)

// ProbeResult is the answer to one question of `lockquake doctor`.
type ProbeResult struct {
	Name      string `json:"name"`
	Available bool   `json:"available"`
	Reason    string `json:"reason"` // what was found, or why not and what would help
}

// Probe tries what this machine can deliver, by the mechanisms of an agent. images are the keys of the images that nodes may need. Where
// an engine answers, Probe starts one container for a moment. It leaves nothing behind.
func Probe(ctx context.Context, m agent.Mechanisms, images ...string) []ProbeResult {
	out := probeEngine(ctx, images)
	add := func(name, found string, err error) { out = append(out, probed(name, found, err)) }
	if os.Geteuid() == 0 {
		add("root", "runs as root", nil)
	} else {
		add("root", "", fmt.Errorf("runs as user %d: the local provider puts all nodes on the loopback address", os.Geteuid()))
	}
	add("network-namespaces", "made one", probeNamespaces())
	add("packet-filter", "made a table and a queue, and removed them", m.Supports(links.DoFilter))
	add("sch_netem", "the kernel has it", probeNetem())
	found, err := probePtrace()
	add("ptrace", found, err)
	found, err = probeLimits()
	add("limits", found, err)
	out = append(out, probeProgram(ctx, "redis-server"))
	path, err := selfProgram("")
	if err == nil {
		err = staticLinux(path)
	}
	add("static-binary", path, err)
	return out
}

func probed(name, found string, err error) ProbeResult {
	if err != nil {
		return ProbeResult{Name: name, Reason: strings.Join(strings.Fields(err.Error()), " ")}
	}
	return ProbeResult{Name: name, Available: true, Reason: found}
}

// probeProgram looks for a server of the local provider.
func probeProgram(ctx context.Context, name string) ProbeResult {
	path, err := program(name, "")
	if err != nil {
		return probed(name, "", err)
	}
	version, err := exec.CommandContext(ctx, path, "--version").Output()
	return probed(name, path+": "+strings.TrimSpace(string(version)), err)
}

// probeEngine asks the engine, looks for the images, and tries to start an agent.
func probeEngine(ctx context.Context, images []string) []ProbeResult {
	d, err := newDocker(DockerOptions{})
	if err != nil {
		return []ProbeResult{probed("engine", "", err), {Name: "agent", Reason: "no engine answers; the local provider's runs as a child process"}}
	}
	out := []ProbeResult{probed("engine", fmt.Sprintf("%s at %s, API %s", d.version.Version, d.api.DaemonHost(), d.api.ClientVersion()), nil)}
	limits, err := d.limits()
	out = append(out, probed("engine-limits", limits, err))
	for _, key := range images {
		ref := projectImage(key)
		if info, err := d.api.ImageInspect(ctx, ref); err != nil {
			out = append(out, ProbeResult{Name: "image-" + key, Reason: ref + " is not there: run `lockquake images`, or name another with --image " + key + "=IMAGE"})
		} else {
			out = append(out, probed("image-"+key, ref+" "+info.ID, nil))
		}
	}
	agentErr := d.withAgent(ctx, func(*agent.Client) error { return nil }) // refused where it does not share the engine's pid namespace
	return append(out, probed("agent", "started in the engine's pid namespace with "+strings.Join(agentCapabilities, ", "), agentErr))
}

// withAgent starts an agent of no run, and removes it.
func (d *docker) withAgent(ctx context.Context, ask func(*agent.Client) error) error {
	dir, err := os.MkdirTemp("", "lockquake-probe-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	logs, err := newNodeLogs(dir)
	if err != nil {
		return err
	}
	r := &dockerRun{docker: d, owner: self("probe", false), request: Request{Run: fmt.Sprintf("p%x", os.Getpid()), Agent: true}, logs: logs}
	defer func() { _ = (&Cluster{close: r.close}).Close(ctx) }()
	if err := r.resolveImages(ctx); err != nil {
		return err
	}
	if err := r.startAgent(ctx); err != nil {
		return err
	}
	return ask(r.agent)
}

// agentSupports asks an agent on the engine's machine why it cannot carry out an order; nil where it can.
func (d *docker) agentSupports(do string) error {
	ctx, cancel := context.WithTimeout(context.Background(), agentStartTimeout+engineTimeout)
	defer cancel()
	return d.withAgent(ctx, func(a *agent.Client) error { return a.Supports(ctx, do) })
}

// askEngines has an agent try which engines shape links on the engine's machine.
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
