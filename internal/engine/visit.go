package engine

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/lockquake/lockquake/backends/topology"
	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/cluster"
	"github.com/lockquake/lockquake/internal/cluster/state"
	"github.com/lockquake/lockquake/internal/engine/deployment"
	"github.com/lockquake/lockquake/internal/engine/plan"
	"github.com/lockquake/lockquake/internal/node"
)

// Visit checks, before anything is written, whether a run on an attached service is possible. The service must answer
// and have nothing below the prefix, and clients must reach its servers. The result where says in one line what would
// be written where. The result partly says how much of the service was checked; "" means all of it.
func Visit(ctx context.Context, o Options) (where, partly string, err error) {
	p, err := Check(o)
	if err != nil {
		return "", "", err
	}
	d := &deployment.Nodes{Plan: p}
	if err := d.Enter(ctx, o.Attached); err != nil {
		return "", "", err
	}
	var addresses []string
	for _, e := range o.Attached.Endpoints {
		addresses = append(addresses, e.Address)
	}
	if a, ok := d.Guest.(topology.Announcer); ok {
		addresses = append(addresses, a.Announced()...)
	}
	if err := d.Guest.Close(); err != nil {
		return "", "", err
	}
	if o.Attached.Trip, err = connectAll(ctx, o, p.ID, addresses); err != nil {
		return "", "", err
	}
	return fmt.Sprintf("below %q on the %s service at %s", o.Attached.Prefix, p.Backend.Name, o.Attached.Addresses()),
		d.Partly, nil
}

// ReachVerb is the node that checks which addresses it can connect to. It prints a line for each that it cannot
// reach, and then ReachDone with the ns of the fastest connect.
const (
	ReachVerb = "reach"
	ReachDone = "done "
)

// connectAll has a node in a client's place connect to all addresses, and returns the time of the fastest connect.
func connectAll(ctx context.Context, o Options, id string, addresses []string) (trip time.Duration, err error) {
	logs, remove, err := state.Scratch("reach")
	if err != nil {
		return 0, plan.MissingError{Text: err.Error()}
	}
	defer func() { _ = remove() }()
	c, err := o.Provider.Open(ctx, cluster.Request{
		Run: id, LogDir: logs, Images: o.Images, Log: o.Log,
		Specs: []node.Spec{{
			Name: history.ClientName(0), Role: node.Client, Image: node.SelfProgram, Stdio: true,
			Command: func(node.Place) []string { return node.Own(ReachVerb, addresses...) },
		}},
	})
	if err != nil {
		return 0, plan.MissingError{Text: fmt.Sprintf("--attach: start a node in place of a client: %v", err)}
	}
	defer func() { err = errors.Join(err, c.Close(ctx)) }()
	if err := cluster.StartAll(ctx, c.Nodes); err != nil {
		return 0, plan.MissingError{Text: fmt.Sprintf("--attach: start a node in place of a client: %v", err)}
	}
	patience := time.AfterFunc(2*deployment.ReachTimeout+generous.hello, func() { _ = c.Close(ctx) })
	defer patience.Stop()
	var cannot []string
	lines := bufio.NewScanner(c.Nodes[0].Process.Stdio().Out)
	for lines.Scan() {
		took, done := strings.CutPrefix(lines.Text(), ReachDone)
		if !done {
			cannot = append(cannot, lines.Text())
			continue
		}
		if len(cannot) == 0 {
			ns, err := strconv.ParseInt(took, 10, 64)
			return time.Duration(ns), err
		}
		return 0, plan.MissingError{Text: fmt.Sprintf("--attach: from where clients run (provider %s): %s%s",
			o.Provider.Name(), strings.Join(cannot, "; "), elsewhere(o.Provider))}
	}
	return 0, plan.MissingError{Text: "--attach: the node in place of a client ended without a message"}
}

// elsewhere says which provider reaches addresses that a provider's clients do not.
func elsewhere(p cluster.Provider) string {
	if _, engined := p.(cluster.Engined); !engined {
		return ""
	}
	return ". Clients are containers here; they can reach neither this machine's 127.0.0.1 nor the networks of other containers, such as those of docker-compose.yml. Use --provider local"
}
