// Package behaviour abstracts a run: it reads a run directory and returns the set of behaviours that the run shows,
// each a short string. A search finds a script interesting if its run shows a behaviour that no earlier run showed.
//
// Example: in one run the holder is paused for half a TTL and releases in time. In another it is paused for two TTLs,
// and another user is granted the lock 10 ms after its validity ended. Both runs show "pause@holder begins: its
// target holds". Only the second shows "grant beside an open hold, 2^-8 ttl after its end".
//
// To keep the set small, numbers are put into buckets of powers of two, users are either own or other, and nodes are
// named by role. Nothing here judges: verdict.json says what was violated.
package behaviour

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
)

// Seen is what a run shows.
type Seen struct {
	Behaviours []string // sorted, each once
	// Near is how close the run came to violating what a count forbids, by the count's name, from 0 to 1.
	Near map[string]float64
	Bit  []Bite
}

// Family returns a behaviour without the fault, its target and amounts. Each fault on each target makes dozens of new
// behaviours of a few families, so the number of behaviours alone says little about how new a run is.
//
// Example: "during pause@holder: release fail not-held, other valid" and "after delay@servers: release fail not-held,
// other valid" are of the family "release fail not-held, other valid".
func Family(of string) string {
	phase, event, ok := strings.Cut(of, ": ")
	if ok && (phase == "before" || strings.HasPrefix(phase, "during ") || strings.HasPrefix(phase, "after ")) {
		of = event
	}
	words := strings.Fields(of)
	words = slices.DeleteFunc(words, func(w string) bool {
		return strings.Contains(w, "@") || strings.HasPrefix(w, "2^")
	})
	return strings.Join(words, " ")
}

// Bite counts how often a fault was injected into targets of one role, and how often it bit.
type Bite struct {
	Fault string `json:"fault"`
	Role  string `json:"role"`
	Made  int    `json:"made"`
	Bit   int    `json:"bit"`
}

// AddBite adds injections to those of the same fault into targets of the same role.
func AddBite(all []Bite, b Bite) []Bite {
	for i := range all {
		if all[i].Fault == b.Fault && all[i].Role == b.Role {
			all[i].Made += b.Made
			all[i].Bit += b.Bit
			return all
		}
	}
	return append(all, b)
}

// Of reads a run directory that has been judged.
func Of(dir string) (Seen, error) {
	env, err := results.ReadEnv(dir)
	if err != nil {
		return Seen{}, err
	}
	report, err := results.ReadReport(dir)
	if err != nil {
		return Seen{}, err
	}
	faults, err := results.ReadFaults(dir)
	if err != nil {
		return Seen{}, err
	}
	observed, err := results.ReadObserved(dir)
	if err != nil {
		return Seen{}, err
	}
	events, err := results.OpenLog(dir, env)
	if err != nil {
		return Seen{}, err
	}
	w := newWatcher(env, faults, observed)
	for err == nil {
		var e history.Event
		if _, err = events.Next(&e); err == nil {
			w.event(&e)
		}
	}
	if err = errors.Join(ignore(err, io.EOF), events.Close()); err != nil {
		return Seen{}, err
	}
	w.until(math.MaxInt64)
	w.shows.found(report, env)
	return Seen{Behaviours: w.shows.sorted(), Near: w.shows.near, Bit: w.faults.bites()}, nil
}

func ignore(err, expected error) error {
	if errors.Is(err, expected) {
		return nil
	}
	return err
}

// watcher collects the behaviours of a run from its events.
type watcher struct {
	shows  shows
	faults standing
	marks  []mark // points in time between events, ordered
	calls  map[call]begun
	locks  map[uint16]*lockState
}

// shows is what was seen so far.
type shows struct {
	ttl  int64 // ns
	seen map[string]struct{}
	near map[string]float64
}

// call identifies an operation under way.
type call struct {
	user history.User
	op   uint32
}

// begun is the invoke of an operation under way. For a release it has the end of the validity of its grant, whose hold
// ended with it.
type begun struct {
	history.Event
	end int64
}

// mark is something that has no event: a fault begins or ends, or a user reaches a point.
type mark struct {
	time int64
	do   func(w *watcher)
}

func newWatcher(env results.Env, faults []history.Fault, observed []history.Observation) *watcher {
	w := &watcher{
		shows:  shows{ttl: max(env.TTL, 1), seen: map[string]struct{}{}, near: map[string]float64{}},
		faults: newStanding(env, faults), calls: map[call]begun{}, locks: map[uint16]*lockState{},
	}
	for i := range w.faults.list {
		f := &w.faults.list[i]
		w.marks = append(w.marks, mark{f.from, func(w *watcher) { w.border(f, "begins") }})
		if f.to < math.MaxInt64 {
			w.marks = append(w.marks, mark{f.to, func(w *watcher) { w.border(f, "ends") }})
		}
		w.lead(f)
	}
	for _, o := range observed {
		if o.By == history.ByPoint {
			w.marks = append(w.marks, mark{o.Answered, func(w *watcher) { w.point(o) }})
		}
	}
	slices.SortStableFunc(w.marks, func(a, b mark) int { return cmp.Compare(a.time, b.time) })
	return w
}

func (s *shows) add(format string, args ...any) { s.seen[fmt.Sprintf(format, args...)] = struct{}{} }

func (s *shows) sorted() []string {
	out := make([]string, 0, len(s.seen))
	for one := range s.seen {
		out = append(out, one)
	}
	slices.Sort(out)
	return out
}

// closer records how near a run came to violating what a count forbids.
func (s *shows) closer(count string, near float64) {
	s.near[count] = max(s.near[count], min(near, 1))
}

// until handles all marks before t.
func (w *watcher) until(t int64) {
	for len(w.marks) > 0 && w.marks[0].time <= t {
		w.expire(w.marks[0].time)
		w.marks[0].do(w)
		w.marks = w.marks[1:]
	}
	w.expire(t)
}

// event handles the next event.
func (w *watcher) event(e *history.Event) {
	w.until(e.Time)
	switch e.Kind {
	case history.Acquire, history.Release, history.Renew, history.Check, history.Read, history.Write, history.Close:
		w.operation(e)
	case history.Lost, history.Dead:
		w.say(e, e.Kind.String())
		w.gone(e)
	case history.Renewed, history.Ended:
		w.extend(e)
	case history.EffectRead, history.EffectWrite:
		w.say(e, wordOf(e))
	case history.Cancel:
		w.say(e, "cancel")
	default:
	}
}

// operation handles the begin or the outcome of a call.
func (w *watcher) operation(e *history.Event) {
	if e.Phase == history.Invoke {
		x := begun{Event: *e}
		if e.Kind == history.Release {
			x.end = w.release(e)
		}
		w.calls[call{e.User, e.Seq}] = x
		return
	}
	invoked := w.calls[call{e.User, e.Op}]
	delete(w.calls, call{e.User, e.Op})
	w.say(e, wordOf(e))
	switch {
	case e.Kind == history.Acquire && e.Phase == history.Ok:
		w.grant(e)
	case e.Kind == history.Acquire:
		w.denied(e, invoked)
	case e.Kind == history.Release, e.Kind == history.Renew, e.Kind == history.Write:
		w.crossing(e, invoked)
	default:
	}
}

// wordOf returns the name of an operation's outcome.
func wordOf(e *history.Event) string {
	word := e.Kind.String() + " " + e.Phase.String()
	if e.Code != history.CodeNone {
		word += " " + history.CodeName(e.Code)
	}
	return word
}

// say adds an event with the active faults and the lock's holders.
func (w *watcher) say(e *history.Event, word string) {
	holds := w.lock(e.Lock).holders(e.User)
	phases := w.faults.at(e.Time, e.User)
	for _, phase := range phases {
		w.shows.add("%s: %s, %s", phase, word, holds)
	}
	if len(phases) > 1 { // of simultaneous faults, the effect matters and not the target
		w.shows.add("%s: %s", strings.Join(phases, " + "), word)
	}
}

// found adds the violations in the verdict, and how near the run's measures came to others.
func (s *shows) found(r results.Report, env results.Env) {
	for _, f := range r.Findings {
		for name, n := range f.Counts {
			if n != nil && *n > 0 && f.Verdict == results.Violated {
				s.add("found %s: %s", name, bucket(float64(*n)))
			}
		}
	}
	bound := max(float64(env.Recovery), float64(env.TTL), 1)
	for measure, count := range map[string]string{
		"stuck_ms_max": "stuck_locks", "orphan_age_ms": "orphans", "deaf_wait_ms_max": "deaf_waits",
		"longest_vain_wait_ms": "starved_users",
	} {
		if m := r.Measures[measure]; m != nil && *m > 0 {
			share := *m * 1e6 / bound
			s.closer(count, share/2)
			s.add("%s: %s of the bound", measure, bucket(share))
		}
	}
}

// bucket returns the powers of two that enclose a positive number.
func bucket(x float64) string {
	switch {
	case x <= 0:
		return "0"
	case x < 1.0/1024:
		return "2^-10"
	}
	return fmt.Sprintf("2^%d", int(math.Floor(math.Log2(min(x, 1<<20)))))
}

// since returns a time in buckets of the TTL.
func (s *shows) since(ns int64) string { return bucket(float64(ns)/float64(s.ttl)) + " ttl" }
