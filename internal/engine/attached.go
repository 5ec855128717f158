package engine

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/backends/listed"
	"github.com/lockquake/lockquake/backends/topology"
	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/cluster"
	"github.com/lockquake/lockquake/internal/cluster/state"
	"github.com/lockquake/lockquake/internal/node"
	"github.com/lockquake/lockquake/internal/wire"
	"github.com/lockquake/lockquake/results"
)

// Attached is a service that somebody else runs. A run writes below the prefix alone, under a name of its own there,
// and removes what it wrote. It changes nothing else of the service.
type Attached struct {
	Backend   string
	Prefix    string
	Master    string             // the name under which Sentinels know the primary
	Database  string             // of Postgres; "": postgres
	Endpoints []cluster.Endpoint // of servers
	// Trip is the round trip to the nearest endpoint from where clients run: the fastest of some connects. Visit sets
	// it.
	Trip time.Duration
}

// ports counts the endpoints by the names of their ports.
func (a *Attached) ports() map[string]int {
	out := map[string]int{}
	for _, e := range a.Endpoints {
		out[e.Port]++
	}
	return out
}

// Addresses lists the endpoints.
func (a *Attached) Addresses() string {
	var list []string
	for _, e := range a.Endpoints {
		list = append(list, e.Address)
	}
	return strings.Join(list, ", ")
}

// below is the prefix of one run.
func (a *Attached) below(run string) string { return a.Prefix + run + "/" }

// common adds to what a backend is told that its servers are somebody else's.
func (p planner) common(c topology.Common) (topology.Common, error) {
	a, s := p.Attached, p.scenario.Backend
	if a == nil {
		return c, nil
	}
	if s.Use != a.Backend {
		return c, p.wrong("backend.use", "it is %s, and the service of --attach is %s", s.Use, a.Backend)
	}
	if len(p.backend.Attachable) == 0 {
		return c, UsageError{Text: fmt.Sprintf("--attach: %s cannot be attached to; these can: %s", s.Use,
			names(slices.DeleteFunc(slices.Clone(p.Catalog.Backends),
				func(b listed.Backend) bool { return len(b.Attachable) == 0 }),
				func(b listed.Backend) string { return b.Name }))}
	}
	ports, n := a.ports(), len(a.Endpoints)
	for _, port := range p.backend.Attachable {
		if ports[port] == 0 {
			return c, UsageError{Text: fmt.Sprintf("--attach: backend %s needs endpoints of its port %q, and the file has none", s.Use, port)}
		}
		n -= ports[port]
	}
	if n != 0 {
		return c, UsageError{Text: fmt.Sprintf("--attach: backend %s has endpoints of %s alone; the file has others",
			s.Use, strings.Join(p.backend.Attachable, ", "))}
	}
	if s.Nodes != 0 && s.Nodes != len(a.Endpoints) {
		return c, p.wrong("backend.nodes", "%d nodes are asked for, and --attach has %d endpoints", s.Nodes,
			len(a.Endpoints))
	}
	if !limits(s.Limits).None() {
		return c, p.wrong("backend", "attached servers are not ours to limit; leave cpus and memory out")
	}
	p.id = newID()
	p.prefix = a.below(p.id)
	c.Nodes = len(a.Endpoints)
	c.Attached = &topology.Attached{
		Run: p.id, Under: a.Prefix, Prefix: p.prefix, Ports: ports, Master: a.Master,
		Database: a.Database,
	}
	return c, nil
}

// attach gives the plan the nodes of somebody else's servers.
func (p planner) attach() (err error) {
	var endpoints []cluster.Endpoint
	specs := p.topology.Specs()
	if p.Attached != nil {
		endpoints = p.Attached.Endpoints
	} else if o, ok := p.topology.(topology.Outside); ok {
		for i, address := range o.Outside() {
			endpoints = append(endpoints, cluster.Endpoint{Port: specs[i].Ports[0].Name, Address: address})
		}
	}
	if len(endpoints) == 0 {
		return nil
	}
	p.outside, err = cluster.Attach(specs, endpoints)
	if err != nil && p.Attached == nil {
		return p.wrong("backend.endpoints", "%v", err)
	}
	if err != nil {
		return UsageError{Text: fmt.Sprintf("--attach: %v", err)}
	}
	return nil
}

// errNotOurs is why an attached server is no target.
var errNotOurs = chaos.Unavailable{
	What:   "a fault on an attached server",
	Reason: "attached servers are not ours to break; aim at clients", Never: true,
}

// checkAttached refuses what would do more to attached servers than use them.
func (p deliveryPlanner) checkAttached() error {
	switch {
	case len(p.outside) == 0:
		return nil
	case p.Keep:
		return UsageError{Text: "--keep: clients that go on would go on writing into the attached service; leave it out"}
	case p.resource != nil && p.resource.Within != "":
		return p.wrong("workload.resource.use",
			"%s keeps its values in the lock service, and an attached one is not ours to lay out; use register",
			p.resource.Name)
	}
	server := func(s node.Spec) bool { return s.Role == node.Server }
	for _, inj := range p.allInjections() {
		if slices.ContainsFunc(p.picks(inj.selector), server) {
			return p.undeliverable(inj, errNotOurs)
		}
		if slices.ContainsFunc(p.picks(inj.far), server) {
			if err := p.deliverableHere(inj); err != nil {
				return p.undeliverable(inj, err)
			}
		}
	}
	return nil
}

// deliverableHere says why a link fault cannot be done at the targets' own ends alone.
func (p deliveryPlanner) deliverableHere(inj injection) error {
	f, ok := inj.fault.(chaos.OneEnded)
	if !ok {
		return chaos.Unavailable{
			What:   inj.kind.Name + " of links to attached servers",
			Reason: "attached servers are not ours to enter", Never: true,
		}
	}
	needs, err := f.AtOwnEnd()
	errs := []error{err}
	for _, role := range p.roles(inj.selector) {
		for _, c := range needs {
			errs = append(errs, p.Provider.Offers(c, role))
		}
	}
	return errors.Join(errs...)
}

// ownSpecs are the nodes that the run starts itself.
func (p *Plan) ownSpecs() []node.Spec {
	return slices.DeleteFunc(slices.Clone(p.specs),
		func(s node.Spec) bool { return len(p.outside) > 0 && s.Role == node.Server })
}

// lookTimeout bounds one look at an attached service, at which each endpoint is connected to several times.
const lookTimeout = 40 * time.Second

// enter looks whether the attached service answers, and has nothing below the prefix. It writes nothing. The handle
// that it leaves knows what to remove in the end.
func (d *deployment) enter(ctx context.Context, a *Attached) error {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	var g errgroup.Group
	for _, e := range a.Endpoints {
		g.Go(func() error { return connects(ctx, d.plan.backend.StartTLS, e) })
	}
	if err := g.Wait(); err != nil {
		return MissingError{Text: "--attach: " + oneLine(err)}
	}
	service := d.plan.topology.Service(cluster.Handles(d.plan.outside))
	guest, ok := service.(topology.Guest)
	if !ok {
		return errors.Join(fmt.Errorf("backend %s cannot be attached to", d.plan.backend.Name), service.Close())
	}
	err := d.identify(ctx)
	if err == nil {
		d.partly, err = guest.Vacant(ctx)
	}
	var wrong UsageError
	switch {
	case errors.As(err, &wrong):
	case errors.Is(err, topology.ErrOccupied):
		err = UsageError{Text: fmt.Sprintf("--attach: prefix %q: %s; give another, or remove what is there", a.Prefix,
			oneLine(err))}
	case err != nil:
		err = MissingError{Text: "--attach: " + oneLine(err)}
	}
	if err != nil {
		return errors.Join(err, service.Close())
	}
	d.guest = service
	return nil
}

// identify refuses endpoints that are not the servers they pass for, and notes those with several servers behind them.
func (d *deployment) identify(ctx context.Context) error {
	i, ok := d.plan.topology.(topology.Identified)
	if !ok {
		return nil
	}
	met, err := i.Identify(ctx, cluster.Handles(d.plan.outside))
	if err == nil {
		if err := topology.CheckMet(met, d.plan.backend.Majority == backends.ByClients); err != nil {
			return UsageError{Text: "--attach: " + oneLine(err)}
		}
	}
	if errors.Is(err, topology.ErrNotItself) {
		return UsageError{Text: "--attach: " + oneLine(err)}
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
func (d *deployment) leave(ctx context.Context, a *Attached, tell func(string)) error {
	if d.guest == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTimeout)
	defer cancel()
	said, err := d.guest.(topology.Guest).Remove(ctx, d.plan.locks)
	err = errors.Join(err, d.guest.Close())
	d.guest = nil
	if err != nil {
		return fmt.Errorf("what is below %s on %s could not be removed: %w", d.plan.prefix, a.Addresses(), err)
	}
	tell("removed from the attached service: " + said)
	if d.cluster != nil {
		d.cluster.Describe["attached"], d.cluster.Describe["attached_removed"] = a.Addresses(), said
		if d.partly != "" {
			d.cluster.Describe["attached_looked_at"] = d.partly
		}
		for _, m := range d.several {
			d.cluster.Describe["attached_behind_"+m.Address] = strings.Join(m.Servers, ", ")
			d.record.change(func(e *results.Env) { e.Warnings = append(e.Warnings, m.String()) })
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
	if o.Attached.Trip, err = reach(ctx, o, p.id, addresses); err != nil {
		return "", "", err
	}
	return fmt.Sprintf("below %q on the %s service at %s", o.Attached.Prefix, p.backend.Name, o.Attached.Addresses()),
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
		return 0, MissingError{Text: err.Error()}
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
		return 0, MissingError{Text: fmt.Sprintf("--attach: start a node in a client's place: %v", err)}
	}
	defer func() { err = errors.Join(err, c.Close(ctx)) }()
	if err := cluster.StartAll(ctx, c.Nodes); err != nil {
		return 0, MissingError{Text: fmt.Sprintf("--attach: start a node in a client's place: %v", err)}
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
		return 0, MissingError{Text: fmt.Sprintf("--attach: from where clients run (provider %s): %s%s",
			o.Provider.Name(), strings.Join(cannot, "; "), elsewhere(o.Provider))}
	}
	return 0, MissingError{Text: "--attach: the node in a client's place ended without a word"}
}

// elsewhere says what reaches addresses that a provider's clients do not.
func elsewhere(p cluster.Provider) string {
	if !inImages(p) {
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
