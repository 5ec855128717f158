package engine

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/backends/listed"
	"github.com/lockquake/lockquake/backends/topology"
	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/cluster"
	"github.com/lockquake/lockquake/internal/node"
	"github.com/lockquake/lockquake/internal/wire"
	"github.com/lockquake/lockquake/lock"
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/scenarios"
	"github.com/lockquake/lockquake/workloads"
	"github.com/lockquake/lockquake/workloads/resource"
)

// Plan is a scenario with every name resolved and every parameter decoded: what Run will do.
type Plan struct {
	scenario  scenarios.Scenario
	backend   listed.Backend
	lock      backends.Lock
	topology  topology.Topology
	workload  workloads.Workload // nil: steps only
	kind      workloads.Kind
	renews    bool           // the workload extends its grants, whether or not the scenario says so
	resource  *resource.Kind // nil: nothing is protected
	guard     resource.Guard
	programs  programs // that take the place of lockquake's own client; nil: none does
	stepUsers []string // the users that steps name, in the order of their clients
	specs     []node.Spec
	locks     []string
	id        string          // of the run; "" where it is drawn later
	prefix    string          // of all keys, where the servers are somebody else's
	outside   []*cluster.Node // servers that somebody else runs, in place of those of specs

	injections []injection                   // all that the schedule may hold
	schedule   []due                         // what happens when, in order
	promise    chaos.Promise                 // what the schedule's injections leave each other and the service
	stepFaults map[int]injection             // by index of the scenario's steps
	observed   map[int][]string              // the nodes that an observe step asks, by its index
	needs      map[string][]chaos.Capability // what faults and limits need of a node, by its name
}

// planner finds what a scenario names, part by part, and fills the plan with it.
type planner struct {
	*Plan
	Options
}

// Check resolves every name of the scenario and decodes every parameter, without starting anything. Its errors are
// UsageError and MissingError.
func Check(o Options) (*Plan, error) {
	p := planner{Plan: &Plan{
		scenario: o.Scenario, stepFaults: map[int]injection{}, observed: map[int][]string{},
		needs: map[string][]chaos.Capability{},
	}, Options: o}
	faults, delivery := faultPlanner{p}, deliveryPlanner{p}
	for _, check := range []func() error{
		p.checkBackend, p.findPrograms, p.checkWorkload, p.checkOffers, p.checkResource, p.checkStepUsers,
		p.checkPrograms, p.checkImages,
		faults.checkChaos, stepPlanner{faults}.check, p.checkExpect, delivery.checkAttached, delivery.prepare,
		delivery.check,
	} {
		if err := check(); err != nil {
			return nil, err
		}
	}
	return p.Plan, nil
}

// terms are the workload's own numbers that its writes are judged by.
func (p *Plan) terms() map[string]int64 {
	if w, ok := p.workload.(workloads.Termed); ok {
		return w.Terms()
	}
	return nil
}

// load returns how long the workload runs.
func (p *Plan) load() time.Duration {
	if p.workload == nil {
		return 0
	}
	return p.scenario.Run.For
}

// warms tells whether the run has a warm-up.
func (p *Plan) warms() bool { return p.workload != nil && p.scenario.Run.Warmup > 0 }

// namesOf returns the names of the nodes of a role.
func (p *Plan) namesOf(role node.Role) []string {
	var out []string
	for _, s := range p.specs {
		if s.Role == role {
			out = append(out, s.Name)
		}
	}
	return out
}

func (p *Plan) nodeNames() []string {
	var out []string
	for _, s := range p.specs {
		out = append(out, s.Name)
	}
	return out
}

// stepUserNode returns the node name of the k-th user that steps name.
func (p *Plan) stepUserNode(k int) string { return history.ClientName(p.stepUserIndex(k)) }

func (p *Plan) stepUserIndex(k int) int {
	if p.workload == nil {
		return k
	}
	return p.scenario.Workload.Clients + k
}

// picks returns the nodes that a selector may pick.
func (p *Plan) picks(sel chaos.Selector) []node.Spec {
	var out []node.Spec
	for _, s := range p.specs {
		if sel.MayPick(s.Name, s.Role) {
			out = append(out, s)
		}
	}
	return out
}

// roles returns the roles of the nodes that a selector may pick.
func (p *Plan) roles(sel chaos.Selector) []node.Role {
	var out []node.Role
	for _, s := range p.picks(sel) {
		if !slices.Contains(out, s.Role) {
			out = append(out, s.Role)
		}
	}
	return out
}

// allInjections lists the injections of the schedule and of the steps.
func (p *Plan) allInjections() []injection {
	all := slices.Clone(p.injections)
	for i := range p.scenario.Steps {
		if inj, ok := p.stepFaults[i]; ok {
			all = append(all, inj)
		}
	}
	return all
}

// NeedsAgent tells whether any fault has to reach a process from outside.
func (p *Plan) NeedsAgent() bool {
	return slices.ContainsFunc(p.allInjections(), func(inj injection) bool { return len(inj.needs()) > 0 })
}

// passage says what a user does at the point that a step awaits: it waits ("reached") or dies ("died").
func (p *Plan) passage(number int, st scenarios.Step) string {
	how := "reached"
	for _, before := range p.scenario.Steps[:number-1] {
		if before.Do == wire.DoArm && before.User == st.User && before.Point == st.Point {
			how = "reached"
			if before.Action == wire.ActionDie {
				how = "died"
			}
		}
	}
	return how
}

// wrong makes an error about a key of the scenario, with its place.
func (p planner) wrong(path, format string, args ...any) error {
	return p.scenario.Errorf(path, format, args...)
}

// place adds the place of a key to an error that does not name one yet.
func (p planner) place(path string, err error) error {
	if placed := (*scenarios.Error)(nil); errors.As(err, &placed) {
		return err
	}
	return p.wrong(path, "%v", err)
}

func (p planner) checkBackend() error {
	s := p.scenario.Backend
	i := slices.IndexFunc(p.Catalog.Backends, func(b listed.Backend) bool { return b.Name == s.Use })
	if i < 0 {
		return p.wrong("backend.use", "there is no backend %q; there are %s", s.Use,
			names(p.Catalog.Backends, func(b listed.Backend) string { return b.Name }))
	}
	p.backend = p.Catalog.Backends[i]
	var ok bool
	if p.lock, ok = p.backend.Lock(s.Lock); !ok {
		return p.wrong("backend.lock", "%s has no lock %q; it has %s", s.Use, s.Lock,
			names(p.backend.Locks, func(l backends.Lock) string { return l.Name }))
	}
	if err := p.checkTTL(); err != nil {
		return err
	}
	common, err := p.common(topology.Common{Nodes: s.Nodes, TTL: s.TTL, Lock: p.lock.Name})
	if err != nil {
		return err
	}
	t, err := p.backend.New(common, s.Params.Decode)
	if err != nil {
		return p.place("backend", err)
	}
	p.topology = t
	p.lock = listed.Declared(p.lock, t)
	if err := p.checkTTL(); err != nil {
		return err
	}
	if err := p.attach(); err != nil {
		return err
	}
	if l := limits(s.Limits); len(t.Specs()) == 0 && !l.None() {
		return p.wrong("backend", "%s has no servers that could be held to %v", s.Use, l)
	}
	for _, spec := range t.Specs() {
		spec.Limits = limits(s.Limits)
		p.specs = append(p.specs, spec)
	}
	return nil
}

// checkTTL refuses a TTL that the service would not keep to.
func (p planner) checkTTL() error {
	if s := p.scenario.Backend; s.TTL < p.lock.MinTTL {
		return p.wrong("backend.ttl", "%v is less than %s honours: its %s lock takes %v and more", s.TTL, s.Use,
			p.lock.Name, p.lock.MinTTL)
	}
	return nil
}

func (p planner) checkWorkload() error {
	s := p.scenario.Workload
	if s.Use == "" {
		if len(p.scenario.Steps) == 0 {
			return p.wrong("workload.use", "there is neither a workload nor steps; workloads are %s",
				names(p.Catalog.Workloads, func(k workloads.Kind) string { return k.Name }))
		}
		return nil
	}
	i := slices.IndexFunc(p.Catalog.Workloads, func(k workloads.Kind) bool { return k.Name == s.Use })
	if i < 0 {
		return p.wrong("workload.use", "there is no workload %q; there are %s", s.Use,
			names(p.Catalog.Workloads, func(k workloads.Kind) string { return k.Name }))
	}
	p.kind = p.Catalog.Workloads[i]
	w, err := p.kind.New(s.Params.Decode)
	if err != nil {
		return p.place("workload", err)
	}
	p.workload = w
	n := w.Locks(s.Clients * max(s.Users, 1))
	if n > maxLocks {
		return p.wrong("workload", "%d locks are more than the %d that a history can name", n, maxLocks)
	}
	for i := range n {
		p.locks = append(p.locks, workloads.LockName(i))
	}
	if w.NeedsResource() && s.Resource.Use == "" {
		return p.wrong("workload.resource", "%s reads and writes what the lock protects; give one of %s", s.Use,
			names(p.Catalog.Resources, func(r resource.Kind) string { return r.Name }))
	}
	for i := range s.Clients {
		p.specs = append(p.specs, p.clientSpec(i))
	}
	return nil
}

// maxLocks is how many locks a history can tell apart.
const maxLocks = 1 << 16

// sharedAt returns the key of a scenario that asks for shared mode; "" if none does.
func sharedAt(workload workloads.Workload, steps []scenarios.Step) string {
	if w, ok := workload.(workloads.Sharing); ok && w.Shares() {
		return "workload.shared"
	}
	for i, st := range steps {
		if st.Mode == lock.Shared.String() {
			return stepPath(i, "mode")
		}
	}
	return ""
}

// checkOffers checks that the lock has what the workload and the steps need: shared mode, renewal, a signal of loss.
func (p planner) checkOffers() error {
	s, has := p.scenario.Workload, p.lock.Offers
	if at := sharedAt(p.workload, p.scenario.Steps); at != "" && !has.Shared {
		return p.wrong(at, "lock %s of %s knows no shared mode", p.lock.Name, p.backend.Name)
	}
	if w, ok := p.workload.(workloads.Renewing); ok && w.Renews() {
		p.renews = true
	}
	switch {
	case p.renews && has.Renewal == "none":
		return p.wrong("workload.use", "%s extends its grants, and lock %s of %s cannot be renewed", s.Use, p.lock.Name,
			p.backend.Name)
	case s.Renew && has.Renewal == "none":
		return p.wrong("workload.renew", "lock %s of %s cannot be renewed", p.lock.Name, p.backend.Name)
	case s.Check == "signal" && !has.LossSignal && !s.Renew && !p.renews:
		return p.wrong("workload.check",
			"lock %s of %s tells nobody of a loss; use check: validity, or renew: true, whose answers tell",
			p.lock.Name, p.backend.Name)
	}
	return nil
}

func (p planner) checkResource() error {
	s := p.scenario.Workload.Resource
	if s.Use == "" {
		return nil
	}
	r, ok := resource.Find(p.Catalog.Resources, s.Use)
	if !ok {
		return p.wrong("workload.resource.use", "there is no resource %q; there are %s", s.Use,
			names(p.Catalog.Resources, func(r resource.Kind) string { return r.Name }))
	}
	g := slices.IndexFunc(r.Guards, func(g resource.Guard) bool { return g.Name == s.Guard })
	if g < 0 {
		return p.wrong("workload.resource.guard", "%s has no guard %q; it has %s", s.Use, s.Guard,
			names(r.Guards, func(g resource.Guard) string { return g.Name }))
	}
	p.guard = r.Guards[g]
	if p.guard.Token && p.lock.Offers.Token == backends.TokenNone {
		return p.wrong("workload.resource.guard",
			"%s needs a fencing token, and lock %s of %s has none; use guard none, or a lock with a token (`lockquake list locks`)",
			s.Guard, p.lock.Name, p.backend.Name)
	}
	if p.guard.Sequencer && !p.lock.Offers.Sequencer {
		return p.wrong("workload.resource.guard",
			"%s asks the lock service whether a sequencer still describes the lock, and lock %s of %s cannot be asked; use lock chubby of etcd",
			s.Guard, p.lock.Name, p.backend.Name)
	}
	if p.guard.Writes != "" && p.kind.Writes != p.guard.Writes {
		return p.wrong("workload.resource.guard", "%s is about %s, which the writes of this workload are not", s.Guard,
			p.guard.Writes)
	}
	if r.Within != "" && r.Within != p.backend.Name {
		return p.wrong("workload.resource.use",
			"%s keeps the values in the lock service itself, which must be %s and is %s; use register", s.Use, r.Within,
			p.backend.Name)
	}
	if i := slices.IndexFunc(r.Specs(), func(s node.Spec) bool { return s.Image != node.SelfProgram }); i >= 0 &&
		p.backend.InProcess {
		return p.wrong("workload.resource.use", "%s needs processes of its own, and backend %s has none; use register",
			s.Use, p.backend.Name)
	}
	p.resource = &r
	p.specs = append(p.specs, r.Specs()...)
	return nil
}

// checkImages refuses an image for a kind of node that the scenario does not have.
func (p planner) checkImages() error {
	var keys []string
	for _, s := range p.ownSpecs() {
		if !slices.Contains(keys, s.Image) {
			keys = append(keys, s.Image)
		}
	}
	if _, several := p.Provider.(cluster.Surveyor); several {
		keys = append(keys, cluster.RelayImage)
	}
	for key := range p.Images {
		if !slices.Contains(keys, key) {
			return UsageError{Text: fmt.Sprintf("--image %s=...: %s has no such nodes; it has %s", key, p.scenario.Name,
				strings.Join(keys, ", "))}
		}
	}
	return p.hasImages()
}

// hasImages refuses nodes whose image is neither there nor named: a dry run tells, too.
func (p planner) hasImages() error {
	imager, ok := p.Provider.(cluster.Imager)
	if !ok {
		return nil
	}
	seen := map[string]bool{}
	for _, s := range p.ownSpecs() {
		if s.Named || seen[s.Image] || p.Images[s.Image] != "" {
			continue
		}
		seen[s.Image] = true
		if err := imager.HasImage(s.Image); err != nil {
			return MissingError{Text: fmt.Sprintf("%s: %s cannot be made: %v", p.scenario.Name, s.Name, err), Err: err}
		}
	}
	return nil
}

// checkStepUsers gives every user that steps name a client of its own, and collects the locks that steps name.
func (p planner) checkStepUsers() error {
	first := 0
	if p.workload != nil {
		first = p.scenario.Workload.Clients
	}
	for i, st := range p.scenario.Steps {
		if st.Do == "" {
			continue
		}
		if !slices.Contains(p.stepUsers, st.User) {
			p.stepUsers = append(p.stepUsers, st.User)
			p.specs = append(p.specs, p.clientSpec(first+len(p.stepUsers)-1))
		}
		if !slices.Contains(p.locks, st.Lock) {
			p.locks = append(p.locks, st.Lock)
		}
		if (st.Do == "read" || st.Do == "write") && p.resource == nil {
			return p.wrong(stepPath(i, "do"), "%s needs something to act on; give workload.resource", st.Do)
		}
	}
	return nil
}

// checkExpect refuses names, in expect and in about, that no run is judged by: a typing error would otherwise cost a
// whole run.
func (p planner) checkExpect() error {
	var faults []string
	for _, i := range p.injections {
		faults = append(faults, i.kind.Name)
	}
	for _, i := range p.stepFaults {
		faults = append(faults, i.kind.Name)
	}
	ofRuns := []string{scenarios.Judged, scenarios.Bit}
	known := func(path, name string) error {
		if slices.Contains(ofRuns, name) || p.Catalog.Checkers.Has(name, faults) {
			return nil
		}
		near := ""
		if c := scenarios.Closest(name, slices.Concat(ofRuns, p.Catalog.Checkers.Names()), 1); len(c) > 0 {
			near = "did you mean " + c[0] + "? "
		}
		return p.wrong(path, "there is no such count or measure; %s`lockquake list measures` lists them", near)
	}
	for i, name := range p.scenario.About {
		if scenarios.IsEvent(name) {
			continue
		}
		if err := known(fmt.Sprintf("about.%d", i), name); err != nil {
			return err
		}
	}
	for _, e := range p.scenario.Expect {
		path := "expect." + e.Name
		if err := known(path, e.Name); err != nil {
			return err
		}
		if e.Unit == "ms" && !results.IsTime(e.Name) {
			return p.wrong(path, "%s is no duration: leave the unit out of %q", e.Name, e.Text)
		}
	}
	return nil
}

func (p planner) clientSpec(i int) node.Spec {
	s := node.Spec{
		Name: history.ClientName(i), Role: node.Client, Image: node.SelfProgram, Stdio: true,
		Limits:  limits(p.scenario.Workload.Limits),
		Command: func(node.Place) []string { return node.Own("client") },
	}
	if c := p.programs.of(i); c != nil {
		c.replace(&s)
	}
	return s
}

// limits are a scenario's limits as the cluster takes them.
func limits(l scenarios.Limits) node.Limits {
	return node.Limits{CPUs: l.CPUs, Memory: int64(l.Memory)}
}

func names[T any](list []T, name func(T) string) string {
	var out []string
	for _, x := range list {
		out = append(out, name(x))
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}
