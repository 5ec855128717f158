package engine

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/internal/cluster"
	"github.com/lockquake/lockquake/internal/seed"
	"github.com/lockquake/lockquake/internal/wire"
	"github.com/lockquake/lockquake/results"
)

// newID returns a random run id that fits into the names of containers and network links.
func newID() string {
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// up starts all nodes side by side, or all but the servers where an earlier run left these clean, and returns when the service serves
// and every client is connected to it.
func (r *run) up(ctx context.Context) error {
	kept, err := r.takeOver(ctx)
	if err == nil && !kept {
		err = r.open(ctx)
	}
	if err != nil {
		return err
	}
	if _, ok := r.service.(backends.SessionLister); ok {
		r.vigil = newVigil()
	}
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		return r.timing(results.TimeServe, func() error {
			if err := r.awaitService(gctx, r.within.ready); err != nil {
				return err
			}
			r.remember(gctx)
			return nil
		})
	})
	g.Go(func() error { return r.timing(results.TimeHello, func() error { return r.greet(gctx) }) })
	if err := g.Wait(); err != nil {
		return err
	}
	return r.timing(results.TimeConnect, func() error { return r.startNodes(ctx) })
}

// open makes all nodes and starts them.
func (r *run) open(ctx context.Context) error {
	err := r.timing(results.TimeOpen, func() (err error) {
		r.cluster, err = r.options.Provider.Open(ctx, cluster.Request{
			Run: r.id, Specs: r.plan.specs, Images: r.options.Images, Agent: r.plan.needsAgent(),
			LogDir: r.logDir(), Keep: r.options.Keep, Reuse: r.options.Ground != nil, Log: r.log,
		})
		return err
	})
	if err != nil {
		return err
	}
	if err := r.timing(results.TimeStart, func() error { return startAll(ctx, r.cluster.Nodes) }); err != nil {
		return err
	}
	r.service = r.plan.topology.Service(r.cluster.ByRole(cluster.Server))
	return nil
}

// startAll starts all nodes side by side.
func startAll(ctx context.Context, nodes []*cluster.Node) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, n := range nodes {
		g.Go(func() error { return n.Start(ctx) })
	}
	return g.Wait()
}

// needsAgent tells whether any fault has to reach a process from outside.
func (p *Plan) needsAgent() bool {
	return slices.ContainsFunc(p.allInjections(), func(inj injection) bool { return len(inj.needs()) > 0 })
}

// awaitService asks until the service serves a real write.
func (r *run) awaitService(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		err := r.service.Ready(ctx)
		if err == nil {
			return nil
		}
		if dead := r.deadServer(); dead != "" {
			return fmt.Errorf("%s is not running; see %s", dead, filepath.Join(r.dir, results.DirLogs, dead+".log"))
		}
		if clock.Sleep(ctx, 20*time.Millisecond) != nil {
			return fmt.Errorf("%s does not serve after %v: %w", r.plan.backend.Name, limit, err)
		}
	}
}

func (r *run) deadServer() string {
	for _, n := range r.cluster.ByRole(cluster.Server) {
		if !n.Running() {
			return n.Name()
		}
	}
	return ""
}

// maxDrift is the error of a measured clock beyond which no interval could be judged.
const maxDrift = 50 * time.Millisecond

// greet opens the control stream of every node that has one and waits for its hello.
func (r *run) greet(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, r.within.hello)
	defer cancel()
	index := 0
	for _, role := range []cluster.Role{cluster.Client, cluster.Resource} {
		for _, n := range r.cluster.ByRole(role) {
			if role == cluster.Resource && !r.speaks(n.Name()) {
				continue
			}
			i := -1
			if role == cluster.Client {
				i = index
				index++
			}
			r.sessions = append(r.sessions, openSession(n, i, r))
		}
	}
	for _, s := range r.sessions {
		if err := s.await(ctx, s.greeted, "hello"); err != nil {
			return err
		}
		d, err := s.compare(ctx)
		if err != nil {
			return err
		}
		if d.err > int64(maxDrift) {
			return fmt.Errorf("%s: its clock can be compared to %v only, which would prove nothing", s.node.Name(), time.Duration(d.err))
		}
		if err := s.record(r.historyDir(), r.plan.locks, d); err != nil {
			return err
		}
	}
	return nil
}

// startNodes tells every node what it is: the resource first, because clients connect to it.
func (r *run) startNodes(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, r.within.hello)
	defer cancel()
	var errs []error
	for _, resource := range []bool{true, false} {
		for _, s := range r.sessions {
			if (s.index < 0) != resource {
				continue
			}
			st, err := r.startFrame(s)
			if err != nil {
				return err
			}
			errs = append(errs, s.conn.Send(wire.Frame{Type: wire.TypeStart, Start: st}))
		}
		for _, s := range r.sessions {
			if (s.index < 0) == resource {
				errs = append(errs, s.await(ctx, s.ready, "ready"))
			}
		}
		if err := errors.Join(errs...); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) startFrame(s *session) (*wire.Start, error) {
	sc := r.plan.scenario
	st := &wire.Start{
		Name: s.node.Name(), Index: s.index, Format: wire.FormatRecords, Seed: seed.Split(sc.Run.Seed, s.node.Name()),
		Locks: r.plan.locks, Timeout: int64(sc.Workload.Timeout), TTL: int64(sc.Backend.TTL), Record: !r.options.NoRecord,
	}
	if res := r.plan.resource; res != nil {
		st.Resource = &wire.Resource{Use: res.Name, Guard: sc.Workload.Resource.Guard, Address: r.resourceAddress()}
	}
	if s.index < 0 {
		st.Guard, st.Terms = sc.Workload.Resource.Guard, r.plan.terms()
		if r.plan.guard.Sequencer || r.plan.resource.Within != "" { // it is a client of the service too, one behind all others
			return st, r.access(st, r.plan.personIndex(len(r.plan.people)))
		}
		return st, nil
	}
	st.Renew, st.Check = sc.Workload.Renew || r.plan.renews, sc.Workload.Check
	if err := r.access(st, s.index); err != nil {
		return nil, err
	}
	if r.plan.workload != nil && s.index < sc.Workload.Clients {
		params, err := json.Marshal(r.plan.workload)
		if err != nil {
			return nil, fmt.Errorf("parameters of workload %s: %w", sc.Workload.Use, err)
		}
		st.Workload = &wire.Workload{Use: sc.Workload.Use, Users: sc.Workload.Users, Total: sc.Workload.Users * sc.Workload.Clients, Params: params}
	}
	return st, nil
}

// speaks tells whether a node of the resource has a control stream.
func (r *run) speaks(node string) bool {
	return slices.ContainsFunc(r.plan.resource.Specs(), func(s cluster.Spec) bool { return s.Name == node && s.Stdio })
}

// resourceAddress is where users reach the resource: the first port of each of its nodes that has one, with commas between;
// of one within the lock service, those of the servers.
func (r *run) resourceAddress() string {
	var list []string
	specs := r.plan.resource.Specs()
	if r.plan.resource.Within != "" {
		specs = r.plan.topology.Specs()
	}
	for _, spec := range specs {
		if len(spec.Ports) > 0 {
			list = append(list, r.cluster.Node(spec.Name).Address(spec.Ports[0].Name))
		}
	}
	return strings.Join(list, ",")
}

// access tells a node how to reach the service, as the client of that number.
func (r *run) access(st *wire.Start, client int) error {
	params, err := json.Marshal(r.plan.topology.Params())
	if err != nil {
		return fmt.Errorf("parameters of %s: %w", r.plan.backend.Name, err)
	}
	access := backends.Access{
		Backend: r.plan.backend.Name, Lock: r.plan.lock.Name, TTL: r.plan.scenario.Backend.TTL, Params: params, Run: r.id, Client: client,
	}
	for _, spec := range r.plan.topology.Specs() {
		e := backends.Endpoint{Name: spec.Name, Addresses: map[string]string{}}
		for _, port := range spec.Ports {
			e.Addresses[port.Name] = r.cluster.Node(spec.Name).Address(port.Name)
		}
		access.Nodes = append(access.Nodes, e)
	}
	if st.Access, err = json.Marshal(access); err != nil {
		return fmt.Errorf("access to %s: %w", r.plan.backend.Name, err)
	}
	return nil
}

// begin lets the workload go and fixes the start of the run.
func (r *run) begin() error {
	start := clock.Now() + int64(20*time.Millisecond) // all clients have the frame by then
	r.mu.Lock()
	r.env.Start = start
	r.mu.Unlock()
	for _, s := range r.sessions {
		if s.index >= 0 {
			if err := s.conn.Send(wire.Frame{Type: wire.TypeGo, Go: &wire.Go{Time: start - s.offset}}); err != nil {
				return fmt.Errorf("%s: go: %w", s.node.Name(), err)
			}
		}
	}
	return nil
}
