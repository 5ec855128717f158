package results

import (
	"cmp"
	"fmt"
	"sort"

	"github.com/lockquake/lockquake/history"
)

// standstills knows when each process of lockquake stood still although no fault asked for it: the machine did that, and neither the
// lock nor its service. A holder who stood still acts late, and what comes of that is nobody's fault.
type standstills struct {
	run   Run
	asked map[string][]span // by process: when faults had it stand still, in the order of time; they do not overlap
	told  map[string]int64  // by process: up to when its stalls are known
	list  map[string][]standstill
}

// standstill is a time in which a process stood still. Those of one process come in the order of time and do not overlap.
type standstill struct {
	span
	before int64 // ns: how long it had stood still before
}

func newStandstills(run Run) *standstills {
	s := &standstills{run: run, asked: map[string][]span{}, told: map[string]int64{}, list: map[string][]standstill{}}
	for i := range run.Faults { // in the order of their start
		f := &run.Faults[i]
		if !stops[f.Name] {
			continue
		}
		x := span{f.Start, f.End}
		if f.End == 0 {
			x.until = forever
		}
		for _, process := range f.Targets {
			list := s.asked[process]
			if n := len(list); n > 0 && x.from <= list[n-1].until {
				list[n-1].until = max(list[n-1].until, x.until)
			} else {
				s.asked[process] = append(list, x)
			}
		}
	}
	return s
}

// observe takes the next event of a process, and returns the stretches in which it stood still unasked, so far as none of them is known.
func (s *standstills) observe(process string, e *history.Event) []span {
	if e.Kind != history.Stall {
		return nil
	}
	from := max(e.Time-e.Value, s.told[process])
	s.told[process] = e.Time
	own := s.unasked(process, span{from, e.Time})
	for _, p := range own {
		x := standstill{span: p}
		if n := len(s.list[process]); n > 0 {
			last := s.list[process][n-1]
			x.before = last.before + last.until - last.from
		}
		s.list[process] = append(s.list[process], x)
	}
	return own
}

// unasked returns the stretches of a stall that no fault on the process explains, from when the workload was let go.
func (s *standstills) unasked(process string, stall span) []span {
	var out []span
	from := max(stall.from, s.run.Start)
	asked := s.asked[process]
	for i := sort.Search(len(asked), func(i int) bool { return asked[i].until > from }); i < len(asked) && asked[i].from < stall.until; i++ {
		if from < asked[i].from {
			out = append(out, span{from, asked[i].from})
		}
		from = max(from, asked[i].until)
	}
	if from < stall.until {
		out = append(out, span{from, stall.until})
	}
	return out
}

// excuse is what stood still while something came too late, and for how long.
type excuse struct {
	process string
	total   int64 // ns
	first   span
}

// within adds up for how long a process stood still from one time to another.
func (s *standstills) within(process string, from, until int64) excuse {
	x := excuse{process: process}
	list := s.list[process]
	i := sort.Search(len(list), func(i int) bool { return list[i].until > from })
	if i < len(list) && list[i].from < until {
		x.first, x.total = list[i].span, stoodUpTo(list, until)-stoodUpTo(list, from)
	}
	return x
}

// stoodUpTo returns how long a process had stood still by t.
func stoodUpTo(list []standstill, t int64) int64 {
	i := sort.Search(len(list), func(i int) bool { return list[i].until > t })
	switch {
	case i < len(list):
		return list[i].before + max(0, t-list[i].from)
	case i > 0:
		return list[i-1].before + list[i-1].until - list[i-1].from
	}
	return 0
}

// worst returns the process that stood still the longest from one time to another.
func (s *standstills) worst(from, until int64) excuse {
	return s.longest(from, until, func(string) bool { return true })
}

// longest returns which of some processes stood still the longest.
func (s *standstills) longest(from, until int64, among func(process string) bool) excuse {
	var w excuse
	if s == nil {
		return w
	}
	for process := range s.list {
		if !among(process) {
			continue
		}
		if x := s.within(process, from, until); cmp.Or(cmp.Compare(x.total, w.total), cmp.Compare(w.process, x.process)) > 0 {
			w = x
		}
	}
	return w
}

func (x excuse) text(run Run) string {
	return fmt.Sprintf("%s did not run for %.3f ms, from %s on, and no fault asked for that", x.process, milli(x.total), run.ms(x.first.from))
}

// overstay is a stay beyond the end of a validity: a hold, or an effect of it, which came late by so much.
type overstay struct {
	user       history.User
	lock       uint16
	start, end int64 // ns: of the stay
	late       int64 // ns: how long it lasted beyond the validity
	n          int64 // how many violations it alone explains
}

// overstayed measures by how much a hold, up to a moment, had outlived its validity; ok is false for one that nothing can excuse: it
// never ended, nobody knows its validity, or that was not over. The stay begins with the request, from which validity is counted.
func overstayed(h *hold, until int64) (o overstay, ok bool) {
	valid := h.until()
	if valid == 0 {
		valid = h.valid
	}
	if valid == history.ValidUnknown || until == forever || valid >= until {
		return o, false
	}
	start := h.start
	if h.issued > 0 {
		start = min(start, h.issued)
	}
	return overstay{user: h.user, lock: h.lock, start: start, end: until, late: until - valid}, true
}

// excused tells whether the stay would have ended within its validity, had its process not stood still, nor one that it waits for: the
// resource, which answers it, and in a run by steps the engine, which tells it to go on.
func (s *standstills) excused(o overstay) (excuse, bool) {
	own := clientName(o.user.Client())
	x := s.longest(o.start, o.end, func(process string) bool {
		_, client := history.ClientOf(process)
		return process == own || !client && (process != history.Engine || s.run.Directed)
	})
	return x, x.total > o.late
}

// because says what stood still, where that alone explains how long h stayed; it ends a witness's sentence.
func (s *standstills) because(run Run, h *hold, until int64) string {
	if o, ok := overstayed(h, until); ok {
		if why, excused := s.excused(o); excused {
			return "; " + why.text(run)
		}
	}
	return ""
}

// Excused is how many of a count are there only because a process of lockquake stood still, which no fault asked for.
type Excused struct {
	N   int64  `json:"n"`
	Why string `json:"why"` // who stood still in one such case, when and for how long
}

// ledger keeps, for one count, what a standstill explains and what nothing does, by lock.
type ledger struct {
	still   *standstills
	excused map[uint16]int64
	sure    map[uint16]bool
	n       int64
	why     string
}

func newLedger(run Run) *ledger {
	return &ledger{still: run.still, excused: map[uint16]int64{}, sure: map[uint16]bool{}}
}

// add takes a violation of a lock that standstills explain, or do not.
func (l *ledger) add(run Run, lock uint16, n int64, x excuse, excused bool) {
	if !excused {
		l.sure[lock] = true
		return
	}
	l.excused[lock] += n
	l.n += n
	if l.why == "" {
		l.why = x.text(run)
	}
}

// found notes how much a finding found under one lock. What explains the violations of that lock explains this too.
func (f *Finding) found(lock uint16, n int64) {
	if f.byLock == nil {
		f.byLock = map[uint16]int64{}
	}
	f.byLock[lock] += n
}

// excuseHarm passes on what the ledgers know of each lock to the findings of what came of it: an update that was lost, a unit sold twice. They
// are excused where a standstill explains every violation of that lock.
func excuseHarm(fs []Finding) {
	excused := func(lock uint16) (why string) {
		for i := range fs {
			l := fs[i].ledger
			if l == nil {
				continue
			}
			if l.sure[lock] {
				return ""
			}
			if l.excused[lock] > 0 {
				why = l.why
			}
		}
		return why
	}
	for i := range fs {
		f := &fs[i]
		var all, n int64
		why := ""
		for lock, found := range f.byLock {
			all += found
			if w := excused(lock); w != "" {
				n, why = n+found, w
			}
		}
		for name, c := range f.Counts {
			if c != nil && n > 0 && (n == all || *c == all) {
				x := Excused{n, why}
				if n == all {
					x.N = *c
				}
				if f.Excused == nil {
					f.Excused = map[string]Excused{}
				}
				f.Excused[name] = x
			}
		}
	}
}

// into notes in a finding what of a count is excused.
func (l *ledger) into(f *Finding, name string) {
	if l.n > 0 {
		if f.Excused == nil {
			f.Excused = map[string]Excused{}
		}
		f.Excused[name] = Excused{l.n, l.why}
	}
}
