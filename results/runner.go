package results

import (
	"fmt"
	"sync"

	"github.com/lockquake/lockquake/history"
)

// CheckerRunner passes the events of one run to checkers.
type CheckerRunner struct {
	checkers []*guarded
	feeds    []*feed
	lost     []Lost
}

// NewCheckerRunner makes the checkers of a run.
func NewCheckerRunner(checkers Checkers, run Run) *CheckerRunner {
	t := &CheckerRunner{lost: run.Lost}
	for _, k := range checkers {
		g := guard(k, run)
		t.checkers = append(t.checkers, g)
		if k.Follows != nil && g.works() {
			t.feed(k.Follows, run).follow(g)
		}
	}
	return t
}

// feed returns the feed of a kind, and makes it if needed.
func (t *CheckerRunner) feed(k *StreamKind, run Run) *feed {
	for _, f := range t.feeds {
		if f.kind == k {
			return f
		}
	}
	f := &feed{kind: k}
	f.do(func() { f.stream = k.New(run) })
	t.feeds = append(t.feeds, f)
	return f
}

// feed is a stream and the checkers that follow it. They run one after the other. The others go on after a checker
// crashes; a crash of the stream ends them all.
type feed struct {
	kind      *StreamKind
	stream    Stream
	crash     any
	followers []*guarded
}

func (f *feed) follow(g *guarded) {
	f.followers = append(f.followers, g)
	f.do(func() { f.stream.Follow(g.checker, g.crashed) })
}

func (f *feed) do(work func()) {
	defer func() {
		if p := recover(); p != nil {
			f.crash = p
		}
		if f.crash != nil {
			for _, g := range f.followers {
				g.crashed(f.crash)
			}
		}
	}()
	if f.crash == nil {
		work()
	}
}

func (f *feed) observe(es []history.Event) {
	f.do(func() {
		for i := range es {
			f.stream.Observe(&es[i])
		}
	})
}

// Observe passes the next events to the checkers, with the headers of their files. Checkers run in parallel, except
// for those that follow one stream: each changes only itself.
func (t *CheckerRunner) Observe(events []history.Event, from []*history.Header) {
	var all sync.WaitGroup
	for _, f := range t.feeds {
		all.Go(func() { f.observe(events) })
	}
	for _, g := range t.checkers {
		if g.kind.Follows == nil {
			all.Go(func() { g.observe(events, from) })
		}
	}
	all.Wait()
}

// Finish returns the findings, and the checker that timed the operations; nil if that crashed.
func (t *CheckerRunner) Finish() (findings []Finding, timer Timer) {
	for _, f := range t.feeds {
		f.do(func() { f.stream.Finish() })
	}
	for _, g := range t.checkers {
		findings = append(findings, g.finish())
		if l, ok := g.checker.(Timer); ok && g.works() {
			timer = l
		}
	}
	excuseHarm(findings)
	for i, g := range t.checkers {
		unprove(&findings[i], g.kind, t.lost)
	}
	return findings, timer
}

// guarded is a checker that may crash without affecting the others.
type guarded struct {
	kind    CheckerKind
	checker Checker
	from    ProcessChecker // the same, if it needs the process
	crash   string         // why it is unknown; "" while it works
	idle    bool           // it judges grants, and the run has none
}

func guard(k CheckerKind, run Run) *guarded {
	g := &guarded{kind: k, idle: k.Grants && run.NoLock}
	g.do(func() {
		g.checker = k.New(run)
		g.from, _ = g.checker.(ProcessChecker)
	})
	return g
}

func (g *guarded) do(f func()) {
	defer func() {
		if p := recover(); p != nil {
			g.crashed(p)
		}
	}()
	f()
}

// Crashed is the prefix of the warning of a checker that crashed.
const Crashed = "the checker crashed: "

func (g *guarded) crashed(why any) {
	if g.crash == "" {
		g.crash = fmt.Sprint(Crashed, why)
	}
}

func (g *guarded) works() bool { return g.crash == "" && !g.idle }

func (g *guarded) observe(es []history.Event, from []*history.Header) {
	if !g.works() {
		return
	}
	g.do(func() {
		for i := range es {
			if g.from != nil {
				g.from.ObserveFrom(from[i], &es[i])
			} else {
				g.checker.Observe(&es[i])
			}
		}
	})
}

func (g *guarded) finish() Finding {
	var f Finding
	switch {
	case g.idle:
		f = f.NotApplicable("there is no lock, so there are no grants")
	case g.crash == "":
		g.do(func() { f = g.checker.Finish() })
	}
	if g.crash != "" {
		return nothingJudged(g.kind, g.crash)
	}
	f.Checker = g.kind.Name
	for _, q := range g.kind.Counts {
		if c, ok := f.Chances[q.Name]; ok {
			c.Of = q.Of
			f.Chances[q.Name] = c
		}
	}
	complete(&f, g.kind)
	return f
}

// complete adds the missing counts and measures of its kind to a finding as nil (not judged).
func complete(f *Finding, k CheckerKind) {
	fill(&f.Counts, k.Counts)
	fill(&f.Measures, k.Measures)
}

func fill[V any](told *map[string]*V, all []Quantity) {
	if *told == nil {
		*told = map[string]*V{}
	}
	for _, q := range all {
		if _, ok := (*told)[q.Name]; !ok {
			(*told)[q.Name] = nil
		}
	}
}

// nothingJudged returns the finding of a checker that could not do its work.
func nothingJudged(k CheckerKind, why string) Finding {
	f := Finding{Checker: k.Name, Verdict: Unknown}
	complete(&f, k)
	if why != "" {
		f.Warnings = []string{why}
	}
	return f
}
