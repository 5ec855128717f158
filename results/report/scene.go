package report

import (
	"slices"
	"strings"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
)

// A scene is the part of a run that is drawn and told. It is all that the users of a story did, or what lies around
// one of these: a witness, the longest time in which nobody got a lock, a handoff of a lock that many wait for.
type scene struct {
	names
	report results.Report
	faults []history.Fault
	seen   observations

	whole   bool             // all that its users did
	worst   *results.Witness // what is told; nil: nothing that would be worth a title
	cause   *results.Witness // what led to it, where the judge found that
	gap     *results.Witness // the time for which a lock could not be taken, where that is what is told
	handoff *handoff         // where that is what is told
	holds   []results.HoldRef
	events  []history.Event // of these users, in the order of time
	reasons recordedReasons // why something was refused or given up, by whoever decided
	crowd   []history.Event // grants of the same locks to others
}

// newScene reads the run directory and returns the part that is drawn; nil where there is none.
func newScene(dir string, r results.Report, env results.Env) (*scene, error) {
	sc := &scene{names: names{env: env}, report: r}
	if w, cause, ok := choose(r); ok {
		sc.worst, sc.cause = &w, cause
	}
	var err error
	if sc.faults, err = results.ReadFaults(dir); err != nil {
		return nil, err
	}
	sc.faults = slices.DeleteFunc(sc.faults, func(f history.Fault) bool {
		return f.Receipt.Status == history.NotMade || f.Receipt.Status == history.NotInstalled || f.Traits.Idle
	})
	if sc.seen, err = results.ReadObserved(dir); err != nil {
		return nil, err
	}
	read := sceneReader{dir: dir, scene: sc}
	err = read.read()
	if err == nil && len(sc.users) == 0 && slices.ContainsFunc(topicsOf(r), func(x topic) bool { return x.count }) {
		err = read.glimpse()
	}
	if err != nil || len(sc.users) == 0 {
		return nil, err
	}
	return sc, nil
}

// lock is the name of the lock that the scene is about, where that is one.
func (sc *scene) lock() string {
	if sc.worst != nil && sc.worst.Lock != "" {
		return sc.worst.Lock
	}
	for _, e := range sc.events {
		if e.Kind == history.Acquire {
			return sc.lockName(e.Lock)
		}
	}
	return ""
}

// which adds the name of the lock to a word, in a scene of more than one lock.
func (sc *scene) which(word string, lock uint16) string {
	for _, e := range sc.events {
		if e.Kind == history.Acquire && e.Lock != lock {
			return word + " " + sc.lockName(lock)
		}
	}
	return word
}

// sessionEnded reports whether a hold without an end was over because nobody saw its session standing after that.
func (sc *scene) sessionEnded(h results.HoldRef) bool {
	return slices.ContainsFunc(sc.events, func(e history.Event) bool {
		return e.Kind == history.Ended && e.User == h.User && e.Grant == h.Grant &&
			(e.Valid == h.Valid || e.Time <= h.Start)
	})
}

// touched tells whether the resource was involved: somebody read or wrote there, or a fault hit it.
func (sc *scene) touched() bool {
	return slices.ContainsFunc(sc.events, isEffect) || slices.ContainsFunc(sc.faults, func(f history.Fault) bool {
		return slices.ContainsFunc(f.Targets, sc.isResource)
	})
}

// span is the time of the scene's events.
func (sc *scene) span() (from, to int64) {
	if len(sc.events) == 0 {
		return 0, 0
	}
	last := sc.events[len(sc.events)-1].Time
	if sc.gap != nil {
		last = max(last, sc.gap.To)
	}
	return sc.events[0].Time, last
}

// nodes lists the servers that need a lane: a fault hit them, they took the lead, they granted what is drawn, or
// they took writes when they were asked all the time.
func (sc *scene) nodes() []string {
	var out []string
	asked := sc.seen.asked()
	add := func(node string) {
		if node != "" && !slices.Contains(out, node) && (len(asked) == 0 || slices.Contains(asked, node)) {
			out = append(out, node)
		}
	}
	from, to := sc.span()
	for _, f := range sc.faults {
		if f.Start > to || f.End != 0 && f.End < from {
			continue
		}
		for _, t := range f.Targets {
			if sc.isServer(t) {
				add(t)
			}
		}
		if f.Lead != nil {
			add(f.Lead.Old)
			add(f.Lead.New)
		}
	}
	for _, h := range sc.holds {
		for _, n := range sc.seen.keepers(h) {
			add(n)
		}
	}
	for _, o := range sc.seen {
		if strings.HasPrefix(o.Fact, history.FactTakes) && o.Answer == "true" {
			add(o.Node)
		}
	}
	slices.SortFunc(out, byNumber)
	return out
}

// answered leaves out the servers whose answers never reached the client, where the lock recorded which ones did.
func (sc *scene) answered(h results.HoldRef, keepers []string) []string {
	r, ok := sc.reasons[reasonKey{true, h.User, h.Grant}]
	if !ok || r.Code != history.CauseAnsweredBy {
		return keepers
	}
	var out []string
	all := sc.seen.asked()
	for i, node := range all {
		if int64(len(all)) == r.Value && i < 64 && r.Token&(1<<i) != 0 {
			out = append(out, node)
		}
	}
	return out
}
