package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/lockquake/lockquake/chaos"
	wall "github.com/lockquake/lockquake/chaos/clock"
	"github.com/lockquake/lockquake/chaos/disk"
	"github.com/lockquake/lockquake/chaos/links"
	"github.com/lockquake/lockquake/chaos/process"
	"github.com/lockquake/lockquake/internal/agent"
	"github.com/lockquake/lockquake/internal/agent/all"
	"github.com/lockquake/lockquake/internal/agent/proc"
	freezer "github.com/lockquake/lockquake/internal/agent/process"
	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/internal/node"
	"github.com/lockquake/lockquake/internal/wait"
)

// orderKind is one kind of order that is active on a node while the supervisor lives.
type orderKind struct {
	name  string
	needs chaos.Capability
	// prepared lists the preparations that the node needs before it starts.
	prepared []node.Preparation
	// give sends the order; nil if there is only the preparation.
	give func(ctx context.Context, n *Node) error
	// watch returns a function that reports from outside whether the order is active on a process.
	watch func(p proc.Process) (stands func() bool, err error)
}

// orderKinds returns all kinds of orders, each for a node of its own.
func orderKinds() []orderKind {
	toItself := func(n *Node, how string) []links.Rule { return []links.Rule{{Node: n.Name(), Port: 9, How: how}} }
	return []orderKind{
		{
			name: "signal", needs: chaos.CanPause, watch: isStopped,
			give: func(ctx context.Context, n *Node) error { _, err := n.Signals.Pause(ctx); return err },
		},
		{
			name: "freeze", needs: process.CanFreeze, give: func(ctx context.Context, n *Node) error { return n.Signals.Freeze(ctx) },
			watch: func(p proc.Process) (func() bool, error) {
				return func() bool { f, err := freezer.AskFrozen(p); return err != nil || f.Frozen }, nil
			},
		},
		{
			name: "filter", needs: links.CanFilter, watch: hasTables,
			give: func(ctx context.Context, n *Node) error { return n.Links.Filter(ctx, "order", toItself(n, links.Drop)) },
		},
		{
			name: "hold", needs: links.CanHold, watch: hasTables,
			give: func(ctx context.Context, n *Node) error { return n.Links.Filter(ctx, "order", toItself(n, links.Hold)) },
		},
		{
			name: "shape", needs: links.CanQueue, watch: hasTables,
			give: func(ctx context.Context, n *Node) error {
				return n.Links.Shape(ctx, "order", toItself(n, links.Shape), links.Shaping{Engine: links.Queue, Delay: time.Second})
			},
		},
		{
			name: "clock", needs: wall.CanClock, watch: hasAnotherClock,
			give: func(ctx context.Context, n *Node) error {
				_, err := n.Clock.ShiftClock(ctx, "order", wall.Shift{Jump: time.Hour})
				return err
			},
		},
		{
			name: "disk", needs: disk.CanHoldSyncs, watch: isTraced,
			give: func(ctx context.Context, n *Node) error {
				_, err := n.Disk.HoldSyncs(ctx, "order", time.Second)
				return err
			},
		},
		{
			name: "cpu", needs: process.CanLimitCPU, watch: isLimited,
			give: func(ctx context.Context, n *Node) error { return n.CPULimit.LimitCPU(ctx, "order", 0.5) },
		},
		{name: "power", needs: disk.CanCutPower, prepared: []node.Preparation{disk.LoopDisk}, watch: hasLoopDisk},
	}
}

func isStopped(p proc.Process) (func() bool, error) {
	return func() bool { s, err := p.Inspect(); return err != nil || s.Stopped() || s.Threads["T"] > 0 }, nil
}

// tablesAt lists lockquake's packet filter tables in the network namespace of a process; set if tests can have any.
var tablesAt = func(int) ([]string, error) { return nil, nil }

func hasTables(p proc.Process) (func() bool, error) {
	return func() bool { tables, err := tablesAt(p.PID); return err == nil && len(tables) > 0 }, nil
}

// hasAnotherClock makes a process read its wall clock. The rest of an undone patch, which stays because a thread may be
// inside, moves no clock.
func hasAnotherClock(p proc.Process) (func() bool, error) {
	return func() bool {
		var got wall.Readings
		err := all.All().Ask(context.Background(), agent.Order{Do: wall.DoReadClocks, Process: p}, &got)
		return err == nil && time.Duration(got.Wall-clock.Wall().UnixNano()).Abs() > time.Minute
	}, nil
}

func isTraced(p proc.Process) (func() bool, error) {
	return func() bool {
		files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", p.PID))
		for _, f := range files {
			b, err := os.ReadFile(f)
			if _, who, _ := strings.Cut(string(b), "TracerPid:\t"); err == nil && who != "" && who[0] != '0' {
				return true
			}
		}
		return false
	}, nil
}

func isLimited(p proc.Process) (func() bool, error) {
	return func() bool {
		var l process.CPULimited
		err := all.All().Ask(context.Background(), agent.Order{Do: process.DoLimitedCPU, Process: p}, &l)
		return err == nil && l.CPUs > 0
	}, nil
}

// hasLoopDisk finds the loop device among what a process has mounted, and then asks the kernel for its file.
func hasLoopDisk(p proc.Process) (func() bool, error) {
	mounts, err := os.ReadFile(fmt.Sprintf("/proc/%d/mounts", p.PID))
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(mounts)) {
		device, found := strings.CutPrefix(strings.Fields(line)[0], "/dev/")
		backing := "/sys/block/" + device + "/loop/backing_file"
		file, err := os.ReadFile(backing)
		if !found || err != nil {
			continue
		}
		return func() bool { now, err := os.ReadFile(backing); return err == nil && string(now) == string(file) }, nil
	}
	return func() bool { return false }, nil
}

// supervise is the main function of a supervisor that will be killed. It opens a cluster, gives every kind of order
// that the provider offers, prints each with its process, and keeps asking until its end.
func supervise(provider string) error {
	ctx := context.Background()
	run, logs, binary := os.Getenv(supervisorVariable+"_RUN"), os.Getenv(supervisorVariable+"_LOGS"), os.Getenv(supervisorVariable+"_BIN")
	var p Provider
	var err error
	switch provider {
	case "docker":
		p, err = NewDocker(DockerOptions{Mechanisms: all.All(), Self: binary})
	case "docker-without-agent":
		p, err = NewDocker(DockerOptions{Mechanisms: all.All(), Self: binary, noAgent: true})
	case "loopback":
		p, err = NewLocal(LocalOptions{Mechanisms: all.All(), Self: binary, Loopback: true})
	default:
		p, err = NewLocal(LocalOptions{Mechanisms: all.All(), Self: binary})
	}
	if err != nil {
		return err
	}
	orders := orderKinds()
	if provider == "docker-without-agent" {
		orders = orders[:2] // the engine's own
	}
	kinds, specs := map[string]orderKind{"client-1": orders[0]}, []node.Spec{stdioSpec("client-1")}
	for _, k := range orders {
		if p.Offers(k.needs, node.Server) == nil {
			s := echoSpec("echo-" + k.name)
			s.Preparations = k.prepared
			kinds[s.Name], specs = k, append(specs, s)
		}
	}
	c, err := p.Open(ctx, Request{Run: run, LogDir: logs, Agent: true, Specs: specs})
	if err != nil {
		return err
	}
	if err := StartAll(ctx, c.Nodes); err != nil {
		return err
	}
	if n, local := c.Nodes[0].driver.(*localNode); local {
		fmt.Println("agent", n.run.agentProcess.cmd.Process.Pid)
	}
	for _, n := range c.Nodes {
		serves := func() bool { _, err := greeting(ctx, n, time.Second); return err == nil }
		if len(n.spec.Ports) > 0 && !wait.Within(patience, serves) {
			return fmt.Errorf("%s does not serve within %v", n.Name(), patience)
		}
		state, err := n.Signals.Inspect(ctx)
		if give := kinds[n.Name()].give; err == nil && give != nil {
			err = give(ctx, n)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", n.Name(), err)
		}
		fmt.Println(kinds[n.Name()].name, state.PID)
	}
	fmt.Println("all 0")
	asking := 500 // so that the agent owes answers when the supervisor dies, and still when its streams are closed
	if provider == "docker-without-agent" {
		asking = 1 // a busy engine would go on answering the dead supervisor for minutes
	}
	var wg sync.WaitGroup
	for range asking {
		wg.Go(func() {
			for {
				if _, err := c.Nodes[0].Signals.Inspect(ctx); err != nil {
					panic(err)
				}
			}
		})
	}
	wg.Wait()
	return nil
}
