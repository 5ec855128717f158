package engine

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/backends/topology"
	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/cluster"
	"github.com/lockquake/lockquake/internal/cluster/state"
	"github.com/lockquake/lockquake/internal/engine/plan"
	"github.com/lockquake/lockquake/internal/node"
	"github.com/lockquake/lockquake/internal/wire"
	"github.com/lockquake/lockquake/results"
)

// lookTimeout bounds one look at an attached service, at which each endpoint is connected to several times.
const lookTimeout = 40 * time.Second

// enter looks whether the attached service answers, and has nothing below the prefix. It writes nothing. The handle
// that it leaves knows what to remove in the end.
func (d *deployment) enter(ctx context.Context, a *plan.Attached) error {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	var g errgroup.Group
	for _, e := range a.Endpoints {
		g.Go(func() error { return connects(ctx, d.plan.Backend.StartTLS, e) })
	}
	if err := g.Wait(); err != nil {
		return plan.MissingError{Text: "--attach: " + oneLine(err)}
	}
	service := d.plan.Topology.Service(cluster.Handles(d.plan.Outside))
	guest, ok := service.(topology.Guest)
	if !ok {
		return errors.Join(fmt.Errorf("backend %s cannot be attached to", d.plan.Backend.Name), service.Close())
	}
	err := d.identify(ctx)
	if err == nil {
		d.partly, err = guest.Vacant(ctx)
	}
	var wrong plan.UsageError
	switch {
	case errors.As(err, &wrong):
	case errors.Is(err, topology.ErrOccupied):
		err = plan.UsageError{Text: fmt.Sprintf("--attach: prefix %q: %s; give another, or remove what is there", a.Prefix,
			oneLine(err))}
	case err != nil:
		err = plan.MissingError{Text: "--attach: " + oneLine(err)}
	}
	if err != nil {
		return errors.Join(err, service.Close())
	}
	d.guest = service
	return nil
}

// identify refuses endpoints that are not the servers they pass for, and notes those with several servers behind them.
func (d *deployment) identify(ctx context.Context) error {
	i, ok := d.plan.Topology.(topology.Identified)
	if !ok {
		return nil
	}
	met, err := i.Identify(ctx, cluster.Handles(d.plan.Outside))
	if err == nil {
		if err := topology.CheckMet(met, d.plan.Backend.Majority == backends.ByClients); err != nil {
			return plan.UsageError{Text: "--attach: " + oneLine(err)}
		}
	}
	if errors.Is(err, topology.ErrNotItself) {
		return plan.UsageError{Text: "--attach: " + oneLine(err)}
	}
	d.several = topology.Several(met)
	return err
}

// connects makes one connection to an endpoint, and shakes hands where that comes first.
func connects(ctx context.Context, startTLS bool, e cluster.Endpoint) error {
	d := net.Dialer{Timeout: reachTimeout}
	conn, err := d.DialContext(ctx, "tcp", e.Address)
	if err != nil {
		return fmt.Errorf("endpoint %s does not answer: %w", e.Address, err)
	}
	if !startTLS {
		ctx, cancel := context.WithTimeout(ctx, reachTimeout)
		defer cancel()
		if conn, err = e.Login.TLS.Over(ctx, conn, e.Address); err != nil {
			return fmt.Errorf("endpoint %s: %w", e.Address, err)
		}
	}
	return conn.Close()
}

// reachTimeout bounds one connect to an endpoint.
const reachTimeout = 5 * time.Second

// oneLine is an error for people.
func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

// removeTimeout bounds the removal of what a run wrote into an attached service.
const removeTimeout = 30 * time.Second

// leave removes what the run wrote, and tells. No client lives any more.
func (d *deployment) leave(ctx context.Context, a *plan.Attached, tell func(string)) error {
	if d.guest == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTimeout)
	defer cancel()
	said, err := d.guest.(topology.Guest).Remove(ctx, d.plan.Locks)
	err = errors.Join(err, d.guest.Close())
	d.guest = nil
	if err != nil {
		return fmt.Errorf("what is below %s on %s could not be removed: %w", d.plan.Prefix, a.Addresses(), err)
	}
	tell("removed from the attached service: " + said)
	if d.cluster != nil {
		d.cluster.Describe["attached"], d.cluster.Describe["attached_removed"] = a.Addresses(), said
		if d.partly != "" {
			d.cluster.Describe["attached_looked_at"] = d.partly
		}
		for _, m := range d.several {
			d.cluster.Describe["attached_behind_"+m.Address] = strings.Join(m.Servers, ", ")
			d.record.Change(func(e *results.Env) { e.Warnings = append(e.Warnings, m.String()) })
		}
	}
	return nil
}

// Visit looks, before anything is written, whether a run on an attached service can be made: whether the service
// answers and has nothing below the prefix, and whether its servers are within reach of the place where clients run. It
// says in one line what would be written where, and, unless that is "", how much of the service was looked at.
func Visit(ctx context.Context, o Options) (where, partly string, err error) {
	p, err := Check(o)
	if err != nil {
		return "", "", err
	}
	d := &deployment{plan: p}
	if err := d.enter(ctx, o.Attached); err != nil {
		return "", "", err
	}
	var addresses []string
	for _, e := range o.Attached.Endpoints {
		addresses = append(addresses, e.Address)
	}
	if a, ok := d.guest.(topology.Announcer); ok {
		addresses = append(addresses, a.Announced()...)
	}
	if err := d.guest.Close(); err != nil {
		return "", "", err
	}
	if o.Attached.Trip, err = reach(ctx, o, p.ID, addresses); err != nil {
		return "", "", err
	}
	return fmt.Sprintf("below %q on the %s service at %s", o.Attached.Prefix, p.Backend.Name, o.Attached.Addresses()),
		d.partly, nil
}

// ReachVerb is the node that tells which addresses it can connect to: a line for each that it cannot, and then
// ReachDone with the ns of the fastest connect.
const (
	ReachVerb = "reach"
	ReachDone = "done "
)

// reach has a node in a client's place connect to all addresses, and returns what the fastest connect took.
func reach(ctx context.Context, o Options, id string, addresses []string) (trip time.Duration, err error) {
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
		return 0, plan.MissingError{Text: fmt.Sprintf("--attach: start a node in a client's place: %v", err)}
	}
	defer func() { err = errors.Join(err, c.Close(ctx)) }()
	if err := cluster.StartAll(ctx, c.Nodes); err != nil {
		return 0, plan.MissingError{Text: fmt.Sprintf("--attach: start a node in a client's place: %v", err)}
	}
	patience := time.AfterFunc(2*reachTimeout+generous.hello, func() { _ = c.Close(ctx) })
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
	return 0, plan.MissingError{Text: "--attach: the node in a client's place ended without a word"}
}

// elsewhere says what reaches addresses that a provider's clients do not.
func elsewhere(p cluster.Provider) string {
	if _, engined := p.(cluster.Engined); !engined {
		return ""
	}
	return ". Clients are containers here, which reach neither this machine's 127.0.0.1 nor the networks of other containers, such as those of docker-compose.yml; --provider local does"
}

// checkOwn refuses clients of somebody else on an attached service: nobody knows whether they keep to the prefix.
func checkOwn(h *wire.Hello) error {
	if h != nil && h.Process == wire.ProcessClient {
		return nil
	}
	return errors.New("it is not lockquake's own client, and nobody knows whether it would keep to the prefix of an attached service")
}
