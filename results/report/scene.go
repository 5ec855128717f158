package report

import (
	"cmp"
	"errors"
	"io"
	"regexp"
	"slices"
	"strconv"
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
	seen   []history.Observation

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

// names is what everybody in a scene is called.
type names struct {
	env   results.Env
	locks []string
	users []history.User // who has a lane: those of a story by name, others by their first hold
}

type key struct {
	user  history.User
	grant uint32
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
	story := len(env.People) > 0
	if story {
		story, err = sc.wholeStory(dir)
	}
	switch {
	case story || err != nil:
	case sc.worst != nil && len(sc.worst.Holds) == 0:
		err = sc.glimpse(dir)
	case sc.worst != nil:
		w := betterWitness(dir, *sc.worst, env)
		sc.worst, sc.holds = &w, slices.Clone(w.Holds)
		if sc.cause != nil {
			sc.holds = slices.Clone(sc.cause.Holds)
		}
		err = sc.around(dir)
	case len(sc.faults) > 0:
		err = sc.outage(dir)
	case r.Measures["wakeups_per_handoff"] != nil, r.Measures["requests_per_handoff"] != nil:
		err = sc.handoffScene(dir)
	}
	if err == nil && len(sc.users) == 0 && slices.ContainsFunc(sc.topics(), func(x topic) bool { return x.count }) {
		err = sc.glimpse(dir)
	}
	if err != nil || len(sc.users) == 0 {
		return nil, err
	}
	return sc, nil
}

// maxStory is how many events of its users can be told as one story: in a longer one nobody finds anything.
const maxStory = 2000

// wholeStory makes the scene of everything that the users did whom the steps name. ok is false where that is too
// much.
func (sc *scene) wholeStory(dir string) (ok bool, err error) {
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
		case e.Kind == history.Acquire && e.Phase == history.Ok && sc.lockName(e.Lock) == sc.lock() && e.Time >= from &&
			e.Time <= to:
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
	case history.Read, history.Write, history.EffectRead, history.EffectWrite, history.Renew, history.Renewed,
		history.Check:
		return true
	}
	return false
}

// unavailable finds the witness of the longest time for which a lock could not be taken.
func unavailable(r results.Report) *results.Witness {
	for w := range witnesses(r, results.DrawGap) {
		return w
	}
	return nil
}

// outage says how long which locks could not be taken, and why; "" where nothing is known of that.
func outage(r results.Report) string {
	if w := unavailable(r); w != nil {
		return w.Text
	}
	return ""
}

// outage makes the scene of the longest time for which a lock could not be taken: the last hold before and the first
// one after.
func (sc *scene) outage(dir string) error {
	w := unavailable(sc.report)
	if w == nil {
		return nil
	}
	var last, next *history.Event
	err := sc.scan(dir, func(e *history.Event) {
		if e.Kind != history.Acquire || e.Phase != history.Ok || sc.lockName(e.Lock) != w.Lock {
			return
		}
		one := *e
		switch {
		case e.Time <= w.From:
			last = &one
		case e.Time >= w.To && next == nil:
			next = &one
		}
	})
	if err != nil || last == nil || next == nil {
		return err
	}
	sc.gap = w
	return sc.grants(dir, last, next)
}

// glimpse makes the scene of two users at work, for witnesses that are no holds: at the time of the one that is told,
// of the first one of a count that the scenario names, else in the middle of the run.
func (sc *scene) glimpse(dir string) error {
	until := sc.env.Start + (sc.env.End-sc.env.Start)/2
	for _, x := range sc.topics() {
		if w := sc.witness(x, func(results.Witness) bool { return false }); w != nil {
			until = w.To
			break
		}
	}
	if sc.worst != nil {
		until = sc.worst.To
	}
	var first, next *history.Event
	err := sc.scan(dir, func(e *history.Event) {
		if e.Kind != history.Acquire || e.Phase != history.Ok || first != nil && e.Time > until {
			return
		}
		one := *e
		if next != nil && e.Lock == next.Lock && e.User != next.User {
			first, next = next, &one
		} else if first == nil {
			next = &one
		}
	})
	if err != nil || first == nil {
		return err
	}
	return sc.grants(dir, first, next)
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
	sc.reasons = recordedReasons{}
	return scan(dir, sc.env, func(locks []string) { sc.locks = locks }, plainly(observe), sc.reasons.observe)
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

// clientWord is a client, or its first user, as texts name them.
var clientWord = regexp.MustCompile(`\bclient-[0-9]+(/0)?\b`)

func (c *names) lockName(i uint16) string {
	if int(i) < len(c.locks) {
		return c.locks[i]
	}
	return ""
}

// name is what a user is called: by the steps' name, else by its client's, with its number where two would have the
// same name.
func (c *names) name(u history.User) string {
	node := clientName(u)
	for name, n := range c.env.People {
		if n == node && u.Index() == 0 {
			return name
		}
	}
	if slices.ContainsFunc(c.users, func(o history.User) bool { return o != u && o.Client() == u.Client() }) {
		return u.String()
	}
	return node
}

// named replaces the names of users and clients in a text by those of the steps.
func (c *names) named(text string) string {
	return clientWord.ReplaceAllStringFunc(text, func(word string) string {
		if name := c.nodeName(strings.TrimSuffix(word, "/0")); name != strings.TrimSuffix(word, "/0") {
			return name
		}
		return word
	})
}

// nodeName is what a node is called; a client of the steps is called by its user.
func (c *names) nodeName(node string) string {
	for name, n := range c.env.People {
		if n == node {
			return name
		}
	}
	return node
}

// isServer tells whether a node is one of the lock service.
func (c *names) isServer(node string) bool {
	return !strings.HasPrefix(node, "client-") && !c.isResource(node)
}

// isResource tells whether a node is one of what the lock protects.
func (c *names) isResource(node string) bool {
	return slices.Contains(c.env.ResourceNodes, node) || len(c.env.ResourceNodes) == 0 && c.env.Resource != "" &&
		strings.HasPrefix(node, c.env.Resource)
}

// observer takes events with the name of the process that recorded them.
type observer func(process string, e *history.Event)

// plainly makes an observer that ignores which process recorded an event.
func plainly(observe func(e *history.Event)) observer {
	return func(_ string, e *history.Event) { observe(e) }
}

// scan reads the history of a run directory once and shows each event to all observers.
func scan(dir string, env results.Env, locks func(names []string), observers ...observer) (err error) {
	m, err := results.OpenLog(dir, env)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	locks(m.Locks())
	var e history.Event
	for {
		from, err := m.Next(&e)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		for _, o := range observers {
			o(from.Process, &e)
		}
	}
}

// holdsOf lists the holds that the events tell of, in the order in which they began.
func holdsOf(events []history.Event) []results.HoldRef {
	var out []results.HoldRef
	for i := range events {
		e := &events[i]
		if e.Kind == history.Acquire && e.Phase == history.Ok {
			out = append(out, refOf(e))
			continue
		}
		for j := range out {
			if h := &out[j]; h.User == e.User && (h.Grant == e.Grant || e.Grant == 0 &&
				(e.Kind == history.Lost || e.Kind == history.Dead)) {
				follow(h, e)
			}
		}
	}
	return out
}

// follow keeps the end of a hold and of its validity.
func follow(h *results.HoldRef, e *history.Event) {
	switch {
	case h.End != 0:
	case e.Kind == history.Release && e.Phase == history.Invoke, e.Kind == history.Lost:
		h.End = e.Time
	case e.Kind == history.Dead:
		h.End = max(e.Value, h.Start)
	case e.Kind == history.Ended:
		h.Valid = e.Valid
	case e.Kind == history.Renewed, e.Kind == history.Renew && e.Phase == history.Ok:
		h.Valid = max(h.Valid, e.Valid)
	}
}

// clientName is the node of a user.
func clientName(u history.User) string { return history.ClientName(u.Client()) }

// clientNumber is the index of a client by its node's name.
func clientNumber(node string) (int, bool) {
	number, ok := strings.CutPrefix(node, "client-")
	n, err := strconv.Atoi(number)
	return n - 1, ok && err == nil && n > 0
}

// refOf is the hold that a grant began.
func refOf(e *history.Event) results.HoldRef {
	return results.HoldRef{User: e.User, Grant: e.Op, Issued: e.Value, Start: e.Time, Valid: e.Valid, Token: e.Token}
}
