package report

import (
	"cmp"
	"errors"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
)

// A scene is the part of a run that is drawn and told: all that the users of a story did, or what lies around a witness, or
// around the longest time in which nobody got a lock, or around one handoff of a lock that many wait for.
type scene struct {
	env    results.Env
	report results.Report
	faults []history.Fault
	seen   []history.Observation
	locks  []string

	whole   bool             // all that its users did
	worst   *results.Witness // what is told; nil: nothing that would be worth a title
	gap     [2]int64         // ns: the time without a grant, where that is what is told
	handoff *handoff         // where that is what is told
	users   []history.User   // who has a lane: those of a story by name, others by their first hold
	holds   []results.HoldRef
	events  []history.Event // of these users, in the order of time
	crowd   []history.Event // grants of the same locks to others
}

type key struct {
	user  history.User
	grant uint32
}

// choice is the order in which witnesses are drawn: the worst first.
var choice = []string{"double_grant", "stale_write", "fence_save", "overlapping_hold"}

// Choose returns the witness that is drawn: a double grant before a stale write, before a fence save, before an
// overlapping hold. ok is false where the run has none of them.
func Choose(r results.Report) (w results.Witness, ok bool) {
	for _, kind := range choice {
		for _, f := range r.Findings {
			for _, w := range f.Witnesses {
				if w.Kind == kind && len(w.Holds) > 0 {
					return w, true
				}
			}
		}
	}
	return results.Witness{}, false
}

// stage reads the run directory and returns what is to be drawn of it; nil where there is nothing.
func stage(dir string, r results.Report, env results.Env) (*scene, error) {
	sc := &scene{env: env, report: r}
	if w, ok := Choose(r); ok {
		sc.worst = &w
	}
	var err error
	if sc.faults, err = results.ReadFaults(dir); err != nil {
		return nil, err
	}
	sc.faults = slices.DeleteFunc(sc.faults, func(f history.Fault) bool {
		return f.Receipt.Status == history.NotMade || f.Receipt.Status == history.NotInstalled || f.Name == "noop"
	})
	if sc.seen, err = results.ReadObserved(dir); err != nil {
		return nil, err
	}
	story := len(env.People) > 0
	if story {
		story, err = sc.people(dir)
	}
	switch {
	case story || err != nil:
	case sc.worst != nil:
		w := recast(dir, *sc.worst, env)
		sc.worst, sc.holds = &w, slices.Clone(w.Holds)
		err = sc.around(dir)
	case len(sc.faults) > 0:
		err = sc.outage(dir)
	case r.Measures["wakeups_per_handoff"] != nil:
		err = sc.crowded(dir)
	}
	if err != nil || len(sc.users) == 0 {
		return nil, err
	}
	return sc, nil
}

// maxStory is how many events of its users can be told as one story: in a longer one nobody finds anything.
const maxStory = 2000

// people makes the scene of a story: whatever the users did that its steps name. ok is false where that is too much.
func (sc *scene) people(dir string) (ok bool, err error) {
	clients := map[int]bool{}
	for _, node := range sc.env.People {
		if c, ok := clientNumber(node); ok {
			clients[c] = true
		}
	}
	used := map[uint16]bool{}
	var events, crowd []history.Event
	err = sc.scan(dir, func(e *history.Event) {
		switch {
		case len(events) > maxStory:
		case e.Kind > history.EffectWrite && e.Kind != history.Ended || e.Kind == history.KindNone:
		case clients[e.User.Client()] && e.User.Index() == 0:
			used[e.Lock] = used[e.Lock] || e.Kind == history.Acquire
			events = append(events, *e)
		case used[e.Lock] && e.Kind == history.Acquire && e.Phase == history.Ok:
			crowd = append(crowd, *e)
		}
	})
	if err != nil || len(events) > maxStory {
		return false, err
	}
	sc.whole, sc.events, sc.crowd = true, events, crowd
	sc.holds = holdsOf(sc.events)
	for _, e := range sc.events {
		if !slices.Contains(sc.users, e.User) {
			sc.users = append(sc.users, e.User)
		}
	}
	slices.SortFunc(sc.users, func(a, b history.User) int { return cmp.Compare(sc.name(a), sc.name(b)) })
	return true, nil
}

// around makes the scene of a few holds: all that belongs to them, and how many others got their lock meanwhile.
func (sc *scene) around(dir string) error {
	slices.SortStableFunc(sc.holds, func(a, b results.HoldRef) int { return cmp.Compare(a.Start, b.Start) })
	mine, users := map[key]bool{}, map[history.User]bool{}
	var from, to int64
	for i, h := range sc.holds {
		mine[key{h.User, h.Grant}], users[h.User] = true, true
		if i == 0 || h.Start < from {
			from = h.Start
		}
		to = max(to, h.Start, h.End)
		if !slices.Contains(sc.users, h.User) {
			sc.users = append(sc.users, h.User)
		}
	}
	if sc.worst != nil {
		to = max(to, sc.worst.To)
	}
	var first, last []history.Event // of what repeats
	err := sc.scan(dir, func(e *history.Event) {
		grant := e.Grant
		if e.Kind == history.Acquire {
			grant = e.Op
		}
		switch {
		case mine[key{e.User, grant}] && repeats(e.Kind):
			if len(first) < maxStory/2 {
				first = append(first, *e)
			} else if last = append(last, *e); len(last) > maxStory {
				last = append(last[:0], last[maxStory/2:]...)
			}
		case mine[key{e.User, grant}], e.Kind == history.Dead && users[e.User]:
			sc.events = append(sc.events, *e)
		case e.Kind == history.Acquire && e.Phase == history.Ok && sc.lockName(e.Lock) == sc.lock() && e.Time >= from && e.Time <= to:
			sc.crowd = append(sc.crowd, *e)
		}
	})
	sc.events = append(sc.events, first...)
	sc.events = append(sc.events, last[max(0, len(last)-maxStory/2):]...) // those in between are not drawn anyway
	slices.SortStableFunc(sc.events, func(a, b history.Event) int { return cmp.Compare(a.Time, b.Time) })
	return err
}

// repeats tells whether a hold may have any number of events of this kind.
func repeats(k history.Kind) bool {
	switch k {
	case history.Read, history.Write, history.EffectRead, history.EffectWrite, history.Renew, history.Renewed, history.Check:
		return true
	}
	return false
}

// outage makes the scene of the longest time, while a fault stood and until the first grant after it, in which nobody got a lock: the
// last hold before and the first one after.
func (sc *scene) outage(dir string) error {
	var before, last, next *history.Event
	var longest int64
	troubled := func(from, to int64) bool {
		return slices.ContainsFunc(sc.faults, func(f history.Fault) bool {
			return f.Start < to && (f.End == 0 || from < f.End)
		})
	}
	err := sc.scan(dir, func(e *history.Event) {
		if e.Kind != history.Acquire || e.Phase != history.Ok {
			return
		}
		one := *e
		if before != nil && one.Time-before.Time > longest && troubled(before.Time, one.Time) {
			longest, last, next = one.Time-before.Time, before, &one
		}
		before = &one
	})
	if err != nil || last == nil {
		return err
	}
	sc.gap = [2]int64{last.Time, next.Time}
	return sc.grants(dir, last, next)
}

// grants makes the scene of two grants, one after the other: all that belongs to their holds.
func (sc *scene) grants(dir string, last, next *history.Event) error {
	sc.holds = []results.HoldRef{refOf(last), refOf(next)}
	if err := sc.around(dir); err != nil {
		return err
	}
	sc.holds = holdsOf(sc.events)
	return nil
}

// scan reads the history of a run directory once and shows each event.
func (sc *scene) scan(dir string, observe func(e *history.Event)) error {
	return scan(dir, sc.env, func(locks []string) { sc.locks = locks }, observe)
}

// lock is the name of the lock that the scene is about, where that is one.
func (sc *scene) lock() string {
	if sc.worst != nil {
		return sc.worst.Lock
	}
	for _, e := range sc.events {
		if e.Kind == history.Acquire {
			return sc.lockName(e.Lock)
		}
	}
	return ""
}

func (sc *scene) lockName(i uint16) string {
	if int(i) < len(sc.locks) {
		return sc.locks[i]
	}
	return ""
}

// name is what a user is called: as the steps call it, else by its client, and by its number where that alone would name two.
func (sc *scene) name(u history.User) string {
	node := clientName(u)
	for name, n := range sc.env.People {
		if n == node && u.Index() == 0 {
			return name
		}
	}
	if slices.ContainsFunc(sc.users, func(o history.User) bool { return o != u && o.Client() == u.Client() }) {
		return u.String()
	}
	return node
}

// clientWord is a client, or its first user, as texts name them.
var clientWord = regexp.MustCompile(`\bclient-[0-9]+(/0)?\b`)

// named puts the names of the steps into a text that names users and clients by their numbers.
func (sc *scene) named(text string) string {
	return clientWord.ReplaceAllStringFunc(text, func(word string) string {
		if name := sc.nodeName(strings.TrimSuffix(word, "/0")); name != strings.TrimSuffix(word, "/0") {
			return name
		}
		return word
	})
}

// scan reads the history of a run directory once and shows each event to all observers.
func scan(dir string, env results.Env, locks func(names []string), observers ...func(e *history.Event)) (err error) {
	m, err := results.OpenLog(dir, env)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	locks(m.Locks())
	var e history.Event
	for {
		switch _, err := m.Next(&e); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		for _, o := range observers {
			o(&e)
		}
	}
}
