package cluster

import (
	"context"
	"fmt"
	"os"
	"sync"

	"github.com/lockquake/lockquake/chaos"
)

// supervise plays a supervisor that is about to be killed: it opens a cluster, freezes a node where it can, pauses two, says so, and
// waits for its end.
func supervise(provider string) error {
	ctx := context.Background()
	run, logs, binary := os.Getenv(supervisorVariable+"_RUN"), os.Getenv(supervisorVariable+"_LOGS"), os.Getenv(supervisorVariable+"_BIN")
	var p Provider
	var err error
	switch provider {
	case "docker":
		p, err = NewDocker(DockerOptions{Self: binary})
	case "docker-without-agent":
		p, err = NewDocker(DockerOptions{Self: binary, noAgent: true})
	case "loopback":
		p, err = NewLocal(LocalOptions{Self: binary, Loopback: true})
	default:
		p, err = NewLocal(LocalOptions{Self: binary})
	}
	if err != nil {
		return err
	}
	c, err := p.Open(ctx, Request{
		Run: run, LogDir: logs, Agent: true, Specs: []Spec{echoSpec("echo-1"), echoSpec("echo-2"), stdioSpec("client-1")},
	})
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	for _, n := range c.Nodes {
		wg.Go(func() {
			if err := n.Start(ctx); err != nil {
				panic(err)
			}
		})
	}
	wg.Wait()
	if p.Offers(chaos.CanFreeze, Server) == nil {
		n := c.Node("echo-2")
		if err := n.Freeze(ctx); err != nil {
			return err
		}
		state, err := n.Inspect(ctx)
		if err != nil {
			return err
		}
		fmt.Println("frozen", state.PID)
	}
	for _, name := range []string{"echo-1", "client-1"} {
		state, err := c.Node(name).Pause(ctx)
		if err != nil {
			return err
		}
		fmt.Println(state.PID)
	}
	select {}
}
