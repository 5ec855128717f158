package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"

	"github.com/moby/moby/api/types/image"
	"github.com/moby/moby/client"
	"golang.org/x/sync/errgroup"

	"github.com/lockquake/lockquake/chaos"
	wall "github.com/lockquake/lockquake/chaos/clock"
	"github.com/lockquake/lockquake/chaos/process"
	"github.com/lockquake/lockquake/internal/agent"
	"github.com/lockquake/lockquake/internal/agent/proc"
	"github.com/lockquake/lockquake/internal/cluster/limits"
	"github.com/lockquake/lockquake/internal/cluster/owner"
	"github.com/lockquake/lockquake/internal/cluster/preload"
	"github.com/lockquake/lockquake/internal/cluster/processes"
	"github.com/lockquake/lockquake/internal/cluster/state"
)

// SweepOptions are the options of Sweep.
type SweepOptions struct {
	// All also removes what was kept on purpose, and the images of lockquake's own binary. It includes what belongs to
	// a supervisor that cannot be checked from here (another machine or pid namespace). What belongs to a running
	// supervisor is never touched.
	All bool
	// Images also removes the images of lockquake's own binary that earlier builds left: all except the newest.
	Images bool
	// Look removes nothing: Swept lists what would be removed, without clocks to restore and groups to thaw.
	Look bool
	// Swarm also sweeps all other hosts of the swarm, if the engine is its manager.
	Swarm bool
	Log   *slog.Logger // may be nil
	// Mechanisms undo what dead agents left.
	Mechanisms agent.Mechanisms
}

// Swept is what Sweep removed, by name, and what it left.
type Swept struct {
	Containers  []string `json:"containers,omitempty"`
	Services    []string `json:"services,omitempty"` // of a swarm
	Networks    []string `json:"networks,omitempty"`
	Processes   []string `json:"processes,omitempty"`
	Directories []string `json:"directories,omitempty"`
	Images      []string `json:"images,omitempty"`
	Clocks      []string `json:"clocks,omitempty"` // restored, of processes that go on
	Frozen      []string `json:"frozen,omitempty"` // control groups in which processes were frozen: thawed
	// Left names what was found and not removed, with the reason.
	Left []string `json:"left,omitempty"`
	// Unseen names the hosts of the swarm that could not be checked, with the reason.
	Unseen []string `json:"unseen,omitempty"`
}

// Empty reports whether nothing was removed.
func (s Swept) Empty() bool {
	return len(s.Containers)+len(s.Services)+len(s.Networks)+len(s.Processes)+len(s.Directories)+len(s.Images)+
		len(s.Clocks)+len(s.Frozen) == 0
}

// String summarizes in one line how much was removed.
func (s Swept) String() string {
	var parts []string
	count := func(n int, what string) {
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, what))
		}
	}
	count(len(s.Containers), "containers")
	count(len(s.Services), "services")
	count(len(s.Networks), "networks")
	count(len(s.Processes), "processes")
	count(len(s.Directories), "directories")
	count(len(s.Images), "images")
	count(len(s.Clocks), "clocks")
	count(len(s.Frozen), "frozen groups")
	if len(parts) == 0 {
		return "nothing"
	}
	return strings.Join(parts, ", ")
}

// Sweep removes what runs with a dead supervisor left behind: processes (stopped ones too), directories, containers and
// networks. It thaws what a dead agent left frozen, and restores clocks that it left moved in processes that go on. It
// does what it can and returns all errors.
func Sweep(ctx context.Context, o SweepOptions) (Swept, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	var s Swept
	errs := []error{s.local(ctx, o)}
	d, err := newDocker(DockerOptions{Log: o.Log, Mechanisms: o.Mechanisms})
	switch {
	case errors.As(err, new(chaos.Unavailable)) && !o.Swarm:
		o.Log.Debug("no containers to sweep", "reason", err)
	case err != nil:
		errs = append(errs, err)
	default:
		if o.Swarm {
			errs = append(errs, s.otherHosts(ctx, o))
		}
		errs = append(errs, s.engine(ctx, d, o))
	}
	if o.Look {
		return s, errors.Join(errs...)
	}
	// Last: the remaining processes run on, and get the machine's clock back.
	of := clocksHere()
	if err == nil {
		of = append(of, clocksIn(ctx, d)...)
	}
	order, args := agent.Order{Do: wall.DoRestore}, wall.RestoreArgs{}
	for _, one := range of {
		order.With, args.Files = append(order.With, one.process), append(args.Files, one.file)
	}
	order.Args = args
	s.Clocks, err = o.restore(ctx, order)
	return s, errors.Join(append(errs, err)...)
}

// local removes everything except containers.
func (s *Swept) local(ctx context.Context, o SweepOptions) error {
	if o.Look {
		return errors.Join(s.processes(ctx, o), s.directories(o))
	}
	first := s.thaw(ctx, o) // a frozen process cannot be killed
	killed := s.processes(ctx, o)
	again := s.thaw(ctx, o) // an agent may have been killed in the middle of its own thaw
	return errors.Join(first, killed, again, s.directories(o))
}

// processes kills the children of dead supervisors.
func (s *Swept) processes(ctx context.Context, o SweepOptions) error {
	found, err := processes.Recorded()
	errs := []error{err}
	for _, p := range found {
		what := fmt.Sprintf("%s of run %s (pid %d)", p.Node, p.Owner.Run, p.PID)
		if !p.Owner.Leftover(o.All) {
			s.leave("process "+what, p.Owner)
			continue
		}
		if err := o.unlessLook(func() error { return processes.Kill(ctx, p.Process) }); err != nil {
			errs = append(errs, fmt.Errorf("kill %s: %w", what, err))
			continue
		}
		s.Processes = append(s.Processes, what)
	}
	return errors.Join(errs...)
}

// clocksHere lists the processes of local runs whose clocks an agent may have moved.
func clocksHere() []clockOf {
	found, err := processes.Recorded()
	if err != nil {
		return nil // reported when they were swept
	}
	out := make([]clockOf, 0, len(found))
	for _, p := range found {
		out = append(out, clockOf{p.Process, preload.File(state.Of(p.Owner.Run), p.Node)})
	}
	return out
}

// thaw thaws what dead agents left frozen, and removes its groups.
func (s *Swept) thaw(ctx context.Context, o SweepOptions) error {
	groups, err := o.restore(ctx, agent.Order{Do: process.DoRestore})
	s.Frozen = append(s.Frozen, groups...)
	return err
}

// restore makes a mechanism undo what dead agents left, and returns a list of it. On a system without agents there is
// nothing.
func (o SweepOptions) restore(ctx context.Context, order agent.Order) (restored []string, err error) {
	if proc.Supported() == nil {
		err = o.Mechanisms.Ask(ctx, order, &restored)
	}
	return restored, err
}

// clockOf is a process of a run, and its libfaketime file, as the process sees it; "" if it has none.
type clockOf struct {
	process proc.Process
	file    string
}

// leave records what is not removed. What belongs to a running supervisor is not mentioned.
func (s *Swept) leave(what string, o owner.Mark) {
	switch {
	case o.Liveness() == owner.Alive:
	case o.Keep:
		s.Left = append(s.Left, what+": kept on purpose")
	default:
		s.Left = append(s.Left, what+": it is not visible from here whether its supervisor runs")
	}
}

// directories removes the state and data of local runs.
func (s *Swept) directories(o SweepOptions) error {
	paths, err := state.Entries()
	errs := []error{err}
	for _, path := range paths {
		own, known := state.ReadOwner(path)
		if !known && !state.Abandoned(path) || known && !own.Leftover(o.All) {
			if known {
				s.leave(path, own)
			}
			continue
		}
		if err := o.unlessLook(func() error {
			err := limits.Sweep(path) // first: the directory names them
			if err == nil {
				err = os.RemoveAll(path)
			}
			return err
		}); err != nil {
			errs = append(errs, fmt.Errorf("remove %s: %w", path, err))
			continue
		}
		s.Directories = append(s.Directories, path)
	}
	return errors.Join(errs...)
}

// unlessLook calls remove unless Look is set.
func (o SweepOptions) unlessLook(remove func() error) error {
	if o.Look {
		return nil
	}
	return remove()
}

// otherHosts sweeps the other hosts of a swarm, through relays of its own. A host that cannot be checked does not stop
// the others.
func (s *Swept) otherHosts(ctx context.Context, o SweepOptions) error {
	p, err := newSwarm(DockerOptions{Log: o.Log, Mechanisms: o.Mechanisms})
	if err != nil {
		return err
	}
	return p.visit(ctx, Request{Run: fmt.Sprintf("c%x", os.Getpid())}, func(run *swarmRun, _ *Cluster) error {
		var errs []error
		for _, h := range run.away {
			if !h.local {
				s.Unseen = append(s.Unseen, h.text())
			}
		}
		for _, m := range run.members {
			switch {
			case m.lacks != nil:
				s.Unseen = append(s.Unseen, m.name+" ("+m.lacks.Error()+")")
			case !m.local:
				errs = append(errs, s.otherHost(ctx, m, o))
			}
		}
		return errors.Join(errs...)
	})
}

// otherHost sweeps one of them.
func (s *Swept) otherHost(ctx context.Context, m *member, o SweepOptions) error {
	of := Swept{}
	var errs []error
	if err := of.containers(ctx, m.run.engine, o, map[string]bool{}); err != nil {
		errs = append(errs, fmt.Errorf("host %s: %w", m.name, err))
	}
	if o.All { // otherwise relays would lack their image
		errs = append(errs, of.images(ctx, m.run.engine, o))
	}
	for _, name := range of.Containers {
		s.Containers = append(s.Containers, m.name+"/"+name)
	}
	for _, name := range of.Images {
		s.Images = append(s.Images, m.name+"/"+name)
	}
	for _, what := range of.Left {
		s.Left = append(s.Left, what+" on host "+m.name)
	}
	return errors.Join(errs...)
}

// services removes the relay services of dead runs, if the engine is a swarm's manager.
func (s *Swept) services(ctx context.Context, d *docker, o SweepOptions, marked client.Filters) error {
	list, err := d.api.ServiceList(ctx, client.ServiceListOptions{Filters: marked})
	if err != nil {
		return nil //nolint:nilerr // the engine is not a manager: there are none
	}
	var errs []error
	for _, one := range list.Items {
		own := owner.Of(one.Spec.Labels)
		if !own.Leftover(o.All) {
			s.leave("service "+one.Spec.Name, own)
			continue
		}
		if err := o.unlessLook(func() error {
			_, err := d.api.ServiceRemove(ctx, one.ID, client.ServiceRemoveOptions{})
			return err
		}); err != nil {
			errs = append(errs, fmt.Errorf("remove service %s: %w", one.Spec.Name, err))
			continue
		}
		s.Services = append(s.Services, one.Spec.Name)
	}
	return errors.Join(errs...)
}

// containers removes containers, and records their runs.
func (s *Swept) containers(ctx context.Context, d *docker, o SweepOptions, emptied map[string]bool) error {
	marked := make(client.Filters).Add("label", owner.Label+"run")
	boxes, err := d.api.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: marked})
	if err != nil {
		return fmt.Errorf("list containers: %w", err)
	}
	var g errgroup.Group
	for _, c := range boxes.Items {
		own, name := owner.Of(c.Labels), strings.TrimPrefix(strings.Join(c.Names, " "), "/")
		if !own.Leftover(o.All) {
			s.leave("container "+name, own)
			continue
		}
		s.Containers, emptied[own.Run] = append(s.Containers, name), true
		g.Go(func() error {
			return o.unlessLook(func() error { return removeContainer(ctx, d.api, c.ID) })
		})
	}
	return g.Wait()
}

// engine removes containers and then the networks that they were in.
func (s *Swept) engine(ctx context.Context, d *docker, o SweepOptions) error {
	emptied := map[string]bool{} // runs whose containers are removed here
	errs := []error{s.containers(ctx, d, o, emptied)}
	marked := make(client.Filters).Add("label", owner.Label+"run")
	errs = append(errs, s.services(ctx, d, o, marked))
	networks, err := d.api.NetworkList(ctx, client.NetworkListOptions{Filters: marked})
	if err != nil {
		return errors.Join(append(errs, fmt.Errorf("list networks: %w", err))...)
	}
	for _, n := range networks.Items {
		own := owner.Of(n.Labels)
		if !own.Leftover(o.All) {
			s.leave("network "+n.Name, own)
			continue
		}
		// the engine may keep forever a network that it believes in use; waiting for it would delay every run
		tries := 1
		switch {
		case n.Scope == "swarm": // its relays have just been removed
			tries = overlayTries
		case emptied[own.Run]:
			tries = networkTries
		}
		if err := o.unlessLook(func() error { return removeNetwork(ctx, d.api, n.ID, tries) }); err != nil {
			errs = append(errs, err)
			continue
		}
		s.Networks = append(s.Networks, n.Name)
	}
	if o.All || o.Images {
		errs = append(errs, s.images(ctx, d, o))
	}
	slices.Sort(s.Containers)
	return errors.Join(errs...)
}

// images removes the unused images of lockquake's own binary: all, or all except the newest.
func (s *Swept) images(ctx context.Context, d *docker, o SweepOptions) error {
	list, err := d.api.ImageList(ctx, client.ImageListOptions{Filters: make(client.Filters).Add("label",
		owner.Label+"self")})
	if err != nil {
		return fmt.Errorf("list images: %w", err)
	}
	slices.SortFunc(list.Items, func(a, b image.Summary) int { return cmp.Compare(b.Created, a.Created) })
	for i, one := range list.Items {
		if i == 0 && !o.All {
			continue
		}
		// An image with several names is removed with the last of them. Older engines name one without any
		// "<none>:<none>".
		names := slices.DeleteFunc(slices.Clone(one.RepoTags),
			func(n string) bool { return strings.HasPrefix(n, "<none>") })
		if len(names) == 0 {
			names = []string{one.ID}
		}
		for _, name := range names {
			if err := o.unlessLook(func() error {
				_, err := d.api.ImageRemove(ctx, name, client.ImageRemoveOptions{PruneChildren: true})
				return err
			}); err != nil {
				s.Left = append(s.Left, "image "+name+": "+err.Error())
				continue
			}
			s.Images = append(s.Images, name)
		}
	}
	return nil
}

// clocksIn lists the processes of runs' containers whose clocks an agent may have moved. The kernel must confirm that a
// process is in the container that the engine names: the pid of an engine on another machine is another process here.
func clocksIn(ctx context.Context, d *docker) []clockOf {
	boxes, err := d.api.ContainerList(ctx,
		client.ContainerListOptions{Filters: make(client.Filters).Add("label", owner.Label+"run")})
	if err != nil {
		return nil // the engine was asked just before, and its error reported
	}
	var out []clockOf
	for _, c := range boxes.Items {
		box, err := d.api.ContainerInspect(ctx, c.ID, client.ContainerInspectOptions{})
		if err != nil || box.Container.State == nil {
			continue
		}
		p, err := proc.Find(box.Container.State.Pid)
		groups, unread := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", p.PID))
		if err == nil && unread == nil && strings.Contains(string(groups), c.ID) {
			out = append(out, clockOf{p, faketimeInImage})
		}
	}
	return out
}
