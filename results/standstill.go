package results

import (
	"cmp"
	"fmt"
	"slices"
	"sort"

	"github.com/lockquake/lockquake/history"
)

// Standstills knows when each process of lockquake stood still although no fault asked for it. The machine caused
// that, not the lock or its service. A holder that stood still acts late, and no lock can be blamed for that.
//
// Example: A's grant is valid until 191 ms, B is granted the lock at 200 ms, and A releases at 310 ms, 119 ms late.
// If A's process stood still for 130 ms of that hold, it would have released in time: the overlap is excused. If it
// stood still for 80 ms, A was late anyway: the overlap counts.
type Standstills struct {
	run   Run
	asked map[string][]period // by process: standstills caused by faults, in the order of time, without overlaps
	told  map[string]int64    // by process: its stalls are known up to this time
	list  map[string][]stall
	any   []stall // standstills of any process; computed from list once that is complete
}

// period is from <= t < until.
type period struct{ from, until int64 }

// stall is a time in which a process stood still. Those of one process are in the order of time and do not overlap.
type stall struct {
	period
	before int64 // ns: total of the earlier stalls
}

// NewStandstills reads from the run when faults stopped its processes, and when steps held their users.
func NewStandstills(run Run) *Standstills {
	s := &Standstills{run: run, asked: map[string][]period{}, told: map[string]int64{}, list: map[string][]stall{}}
	for i := range run.Faults {
		f := &run.Faults[i]
		if !f.Traits.Halts && !f.Traits.Slows {
			continue
		}
		x := period{f.Start, f.End}
		if f.End == 0 {
			x.until = Forever
		}
		for _, process := range f.Targets {
			s.asked[process] = append(s.asked[process], x)
		}
	}
	for _, h := range run.Held() {
		s.asked[h.Process] = append(s.asked[h.Process], period{h.From, h.To})
	}
	for process, list := range s.asked {
		s.asked[process] = merged(list)
	}
	return s
}

// merged sorts periods and joins overlapping ones.
func merged(list []period) (out []period) {
	slices.SortFunc(list, func(a, b period) int { return cmp.Compare(a.from, b.from) })
	for _, x := range list {
		if n := len(out); n > 0 && x.from <= out[n-1].until {
			out[n-1].until = max(out[n-1].until, x.until)
		} else {
			out = append(out, x)
		}
	}
	return out
}

// Observe takes the next event of a process. It returns the longest new period (ns) in which the process stood still
// without a fault.
func (s *Standstills) Observe(process string, e *history.Event) (longest int64) {
	if e.Kind != history.Stall {
		return 0
	}
	from := max(e.Time-e.Value, s.told[process])
	s.told[process] = e.Time
	for _, p := range s.unasked(process, period{from, e.Time}) {
		longest = max(longest, p.until-p.from)
		x := stall{period: p}
		if n := len(s.list[process]); n > 0 {
			last := s.list[process][n-1]
			x.before = last.before + last.until - last.from
		}
		s.list[process] = append(s.list[process], x)
	}
	return longest
}

// unasked returns the parts of a stall that no fault on the process explains, from the start of the workload.
func (s *Standstills) unasked(process string, stall period) []period {
	var out []period
	from := max(stall.from, s.run.Start)
	asked := s.asked[process]
	for i := sort.Search(len(asked), func(i int) bool { return asked[i].until > from }); i < len(asked) &&
		asked[i].from < stall.until; i++ {
		if from < asked[i].from {
			out = append(out, period{from, asked[i].from})
		}
		from = max(from, asked[i].until)
	}
	if from < stall.until {
		out = append(out, period{from, stall.until})
	}
	return out
}

// Asked returns the total time for which faults stopped a process from one time to another.
func (s *Standstills) Asked(process string, from, until int64) (total int64) {
	if s == nil {
		return 0
	}
	for _, p := range s.asked[process] {
		total += max(0, min(p.until, until)-max(p.from, from))
	}
	return total
}

// Standstill says which process stood still in some time, and for how long.
type Standstill struct {
	Process string
	Total   int64 // ns
	from    int64 // its start
}

// within returns the total time for which a process stood still from one time to another.
func (s *Standstills) within(process string, from, until int64) Standstill {
	x := Standstill{Process: process}
	list := s.list[process]
	i := sort.Search(len(list), func(i int) bool { return list[i].until > from })
	if i < len(list) && list[i].from < until {
		x.from, x.Total = list[i].from, stoodUpTo(list, until)-stoodUpTo(list, from)
	}
	return x
}

// stoodUpTo returns the total time for which a process had stood still by t.
func stoodUpTo(list []stall, t int64) int64 {
	i := sort.Search(len(list), func(i int) bool { return list[i].until > t })
	switch {
	case i < len(list):
		return list[i].before + max(0, t-list[i].from)
	case i > 0:
		return list[i-1].before + list[i-1].until - list[i-1].from
	}
	return 0
}

// Worst returns the process that stood still the longest from one time to another.
func (s *Standstills) Worst(from, until int64) Standstill {
	return s.Longest(from, until, AnyProcess)
}

// AnyProcess selects every process of lockquake.
func AnyProcess(string) bool { return true }

// Longest returns the process of a selection that stood still the longest.
func (s *Standstills) Longest(from, until int64, among func(process string) bool) Standstill {
	var w Standstill
	if s == nil {
		return w
	}
	for process := range s.list {
		if !among(process) {
			continue
		}
		if x := s.within(process, from, until); cmp.Or(cmp.Compare(x.Total, w.Total),
			cmp.Compare(w.Process, x.Process)) > 0 {
			w = x
		}
	}
	return w
}

// maxSteps is how many steps of a hand-over a standstill can delay, one after the other. A hand-over of a lock in
// several requests has about ten wake-ups of the processes that take part.
const maxSteps = 16

// Delay returns by how much standstills can have delayed what a selection of processes did from one time to another.
// A step is delayed by one standstill at most, so only as many count as there are steps: those that together cover the
// most time, of whatever process. Time in which several processes stood still counts once.
//
// Example: on a busy machine a process runs for a moment every 25 ms. In a wait of 1,500 ms it stands still 60 times,
// for nearly all of it, but had the lock been free, a waiter would have had it after some of these times: 16 of them
// explain 400 ms.
func (s *Standstills) Delay(from, until int64, among func(process string) bool) (total int64) {
	if s == nil {
		return 0
	}
	var rest, covered []period
	for process, list := range s.list {
		i := sort.Search(len(list), func(i int) bool { return list[i].until > from })
		for ; i < len(list) && list[i].from < until && among(process); i++ {
			rest = append(rest, period{max(from, list[i].from), min(until, list[i].until)})
		}
	}
	for range maxSteps {
		var most int64
		var best period
		for _, p := range rest {
			if n := p.until - p.from; n > most && n-overlap(covered, p) > most {
				most, best = n-overlap(covered, p), p
			}
		}
		if most == 0 {
			break
		}
		total += most
		covered = merged(append(covered, best))
	}
	return total
}

// overlap returns the total time of p that the periods cover. They do not overlap each other.
func overlap(list []period, p period) (total int64) {
	for _, x := range list {
		total += max(0, min(p.until, x.until)-max(p.from, x.from))
	}
	return total
}

// together returns when any process stood still, in the order of time. It must only be called after the last stall.
func (s *Standstills) together() []stall {
	if s.any != nil {
		return s.any
	}
	var all []period
	for _, list := range s.list {
		for _, x := range list {
			all = append(all, x.period)
		}
	}
	slices.SortFunc(all, func(a, b period) int { return cmp.Compare(a.from, b.from) })
	for _, p := range all {
		n := len(s.any)
		switch {
		case n > 0 && p.from <= s.any[n-1].until:
			s.any[n-1].until = max(s.any[n-1].until, p.until)
		case n > 0:
			last := s.any[n-1]
			s.any = append(s.any, stall{p, last.before + last.until - last.from})
		default:
			s.any = append(s.any, stall{period: p})
		}
	}
	return s.any
}

// inside returns the total time of w in which any process stood still.
func (s *Standstills) inside(w Interval) int64 {
	if s == nil {
		return 0
	}
	return stoodUpTo(s.together(), w.To) - stoodUpTo(s.together(), w.From)
}

// fullest returns the window of the given length (ns) with the most standstill in it. A longer window has at most its
// extra length of additional standstill, so its time without standstills is never less.
func (s *Standstills) fullest(length int64) (w Interval) {
	if s == nil {
		return w
	}
	var most int64
	for _, x := range s.together() {
		for _, at := range []Interval{{x.from, x.from + length}, {x.until - length, x.until}} {
			if n := s.inside(at); n > most {
				most, w = n, at
			}
		}
	}
	return w
}

// Text describes the standstill for people.
func (x Standstill) Text(run Run) string {
	return fmt.Sprintf("%s did not run for %.3f ms, from %s on, without a fault", x.Process, Milli(x.Total),
		run.MS(x.from))
}

// Excused is the part of a count that exists only because a process of lockquake stood still without a fault.
type Excused struct {
	N   int64  `json:"n"`
	Why string `json:"why"` // who stood still in one such case, when and for how long
}

// Ledger keeps, for one count and by lock, what standstills explain and what nothing explains.
type Ledger struct {
	excused map[uint16]int64
	sure    map[uint16]bool
	n       int64
	why     string
}

// NewLedger makes an empty one.
func NewLedger() *Ledger {
	return &Ledger{excused: map[uint16]int64{}, sure: map[uint16]bool{}}
}

// Add adds violations of a lock, which standstills excuse or do not.
func (l *Ledger) Add(run Run, lock uint16, n int64, x Standstill, excused bool) {
	if !excused {
		l.sure[lock] = true
		return
	}
	l.excused[lock] += n
	l.n += n
	if l.why == "" {
		l.why = x.Text(run)
	}
}

// Found adds to a finding's count of one lock. What explains the violations of that lock explains this too.
func (f *Finding) Found(lock uint16, n int64) {
	if f.ByLock == nil {
		f.ByLock = map[uint16]int64{}
	}
	f.ByLock[lock] += n
}

// excuseHarm applies the ledgers to the findings of harm, such as a lost update or a unit sold twice. Harm is excused
// if standstills explain every violation of its lock.
func excuseHarm(fs []Finding) {
	excused := func(lock uint16) (why string) {
		for i := range fs {
			l := fs[i].Ledger
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
		for lock, here := range f.ByLock {
			all += here
			if w := excused(lock); w != "" {
				n, why = n+here, w
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

// Into sets the excused part of a count in a finding.
func (l *Ledger) Into(f *Finding, name string) {
	if l.n > 0 {
		if f.Excused == nil {
			f.Excused = map[string]Excused{}
		}
		f.Excused[name] = Excused{l.n, l.why}
	}
}
