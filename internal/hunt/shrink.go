package hunt

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/lockquake/lockquake/internal/campaign"
	"github.com/lockquake/lockquake/internal/hunt/script"
	"github.com/lockquake/lockquake/internal/seed"
	"github.com/lockquake/lockquake/results"
)

// A script is handed out when proof of tries fresh runs reached its goal. Before that, a smaller one replaces it when
// chosen runs in a row reached the goal: fewer, because most of them are right and the last one is proven.
const (
	tries  = 10
	proof  = 9
	chosen = 3
)

// relative is the number of a script that is no reduction, and mostTrials bounds how many are tried in vain.
const (
	relative   = -1
	mostTrials = 1000
)

// trial is the runs of one script.
type trial struct {
	script script.Script
	number int    // among the reductions of the script that it came from
	ok     int    // runs that reached the goal, without any other objection
	failed int    // the other ones
	unsure int    // runs that do not show whether, and count as neither
	goal   int    // all runs that reached the goal
	dir    string // of the last run counted in ok
}

// mostUnsure bounds the runs of a script that count as neither: it may be the script because of which nothing is shown.
const mostUnsure = 2

func (t trial) runs() int { return t.ok + t.failed }

// accepted weighs a failure against as many successes as make it likely that 9 of 10 runs succeed.
func (t trial) accepted() bool { return t.ok >= chosen+t.failed*(proof-chosen) }
func (t trial) proven() bool   { return t.ok >= proof }
func (t trial) rejected() bool { return t.failed > tries-proof }

// shrinker makes the script of a finding smaller. Its steps are a function of the results that it takes in.
//
// It tries the reductions of a script in their order, the most daring first, and goes round: after an accepted one it
// goes on with the kind of reduction at which it was, so that what was in vain is not tried again at each step. One
// whose first run fails is put off to the end of the round, and rejected when it fails again. A run that does not show
// whether the goal was reached is repeated.
//
// The script is tried first as it was found. If its violation is rare, every other try is a mutation of it, and each
// that reaches the goal as often before its second failure replaces it. What is rare may become certain when a jump of
// a clock is longer, or when a fault is left out that did not bite.
//
// In the end the last accepted script must reach the goal in runs that had no part in its choice. If it does not, a
// bisection finds the smallest accepted one that does.
type shrinker struct {
	hunt   *Hunt
	goal   string
	phase  phase
	took   time.Duration // by the last run
	steps  int           // trials begun
	others []string

	best    trial           // the script to make smaller
	tested  bool            // it had its own runs
	kept    []trial         // the accepted ones, the last of them the smallest
	queue   []trial         // reductions of the best one
	later   []trial         // those whose first run failed
	refused map[string]bool // by JSON: the rejected scripts
	now     *trial          // under way; nil: none

	proving bool
	good    int   // how many of kept are no smaller than a proven one
	bad     int   // the first of kept that is not larger than a disproven one
	proof   trial // of the smallest proven one; if none is, of the one tried last
	over    bool

	last    Violation
	stopped string // why it ended although smaller scripts remained; "": none did
}

func newShrinker(h *Hunt) *shrinker {
	s := &shrinker{hunt: h, refused: map[string]bool{}}
	f := h.search.worst(h.Goals)
	if f == nil {
		s.over = true
		return s
	}
	s.goal, s.best, s.last, s.others = f.Goal, trial{script: f.Script}, f.Violation, slices.Clone(f.Others)
	for _, g := range h.search.found {
		if g.Goal != f.Goal && g.Run == f.Run {
			s.meet(g.Goal)
		}
	}
	s.renew(0)
	return s
}

// meet records a count that rises together with the goal.
func (s *shrinker) meet(name string) {
	if name != s.goal && !slices.Contains(s.others, name) {
		s.others = append(s.others, name)
		slices.Sort(s.others)
	}
}

// keyOf returns a key that identifies a script.
func keyOf(x script.Script) string {
	b, err := json.Marshal(x)
	if err != nil {
		return fmt.Sprint(err)
	}
	return string(b)
}

// renew lists the reductions of the best script that were not rejected before, beginning with number from.
func (s *shrinker) renew(from int) {
	s.queue, s.later = nil, nil
	self := keyOf(s.best.script)
	list := s.hunt.Scripts.Reductions(s.best.script)
	for i := range list {
		number := (from + i) % len(list)
		if key := keyOf(list[number]); key != self && !s.refused[key] {
			s.queue = append(s.queue, trial{script: list[number], number: number})
		}
	}
}

// next returns the next run; ok is false if there is none.
func (s *shrinker) next() (j campaign.Job, ok bool) {
	for !s.over {
		if s.now == nil && !s.begin() {
			s.over = true
			break
		}
		if s.hunt.ShrinkBudget > 0 && s.phase.spent+s.takes() > s.hunt.ShrinkBudget {
			s.stopped, s.over = "the budget of "+s.hunt.ShrinkBudget.String()+" was spent", true
			break
		}
		sc, err := s.hunt.scenario(s.now.script, asks(s.goal), demand(s.goal, s.others))
		if err != nil {
			s.now.failed = tries
			s.settle()
			continue
		}
		s.hunt.under = Note{Script: s.now.script}
		name := fmt.Sprintf("shrink-%d-%d", s.phase.runs, s.hunt.idle)
		return s.hunt.job(jobShrink, sc, seed.Split(s.hunt.Seed, name)), true
	}
	return j, false
}

// begin chooses what to try next. It returns false if nothing is left.
func (s *shrinker) begin() bool {
	if !s.proving {
		if s.short() && len(s.kept) > 0 {
			s.queue, s.later = nil, nil
		}
		if len(s.queue) == 0 {
			s.queue, s.later = s.later, nil
		}
		rare := len(s.kept) == 0
		switch {
		case rare && !s.tested:
			s.now = &trial{script: s.best.script}
			s.steps++
			return true
		case rare && s.steps < mostTrials && (s.steps%2 == 0 || len(s.queue) == 0):
			r := seed.Rand(s.hunt.Seed, fmt.Sprintf("relative-%d", s.steps))
			s.now = &trial{script: s.hunt.Scripts.Mutate(r, s.best.script, nil), number: relative}
			s.steps++
			return true
		case len(s.queue) > 0:
			s.now, s.queue = &s.queue[0], s.queue[1:]
			if s.now.failed == 0 {
				s.steps++
			}
			return true
		}
		s.proving, s.bad = true, len(s.kept)
	}
	if s.good >= s.bad {
		return false
	}
	i := s.bad - 1 // the smallest first
	if s.bad < len(s.kept) {
		i = (s.good + s.bad) / 2
	}
	s.now = &trial{script: s.kept[i].script, number: i}
	return true
}

// short reports whether the remaining time is needed to prove the current script, and before that to accept it. A
// quarter of the budget is for smaller ones in any case, since their runs are shorter.
func (s *shrinker) short() bool {
	runs := tries + chosen
	budget := s.hunt.ShrinkBudget
	left := budget - s.phase.spent
	each := s.takes()
	if n := time.Duration(s.phase.runs); n > 0 {
		each = max(each, s.phase.spent/n*3/2) // the machine may become busier
	}
	if budget <= 0 || left > min(time.Duration(runs)*each, budget*3/4) {
		return false
	}
	s.stopped = "the budget of " + s.hunt.ShrinkBudget.String() + " was nearly spent"
	return true
}

// takes estimates the time of the next run by that of the last one.
func (s *shrinker) takes() time.Duration {
	return cmp.Or(s.took, s.hunt.takes(s.phase, s.best.script.For))
}

// take takes in the result of a run.
func (s *shrinker) take(r campaign.Result, n Note) {
	s.phase.add(r)
	s.took = time.Duration(r.Took) * time.Millisecond
	if s.over || s.now == nil && !s.begin() || keyOf(n.Script) != keyOf(s.now.script) {
		return // of a hunt with other scripts: the note does not fit, and is ignored
	}
	if slices.ContainsFunc(n.Found, func(v Violation) bool { return v.Goal == s.goal }) {
		s.now.goal++
	}
	if n.Unsure && !s.proving && s.now.unsure < mostUnsure {
		s.now.unsure++
		return
	}
	if n.Reached {
		s.now.ok++
		if len(n.Found) > 0 {
			s.last = n.Found[0]
		}
		s.drop(s.now.dir)
		s.now.dir = r.Dir
	} else {
		s.now.failed++
	}
	if !s.proving {
		for _, name := range n.Others {
			s.meet(name)
		}
	}
	s.settle()
}

// settle ends a trial that is decided.
func (s *shrinker) settle() {
	t := *s.now
	self := keyOf(t.script) == keyOf(s.best.script)
	switch {
	case s.proving && !t.rejected() && t.runs() < tries, !s.proving && self && !t.accepted() && !t.rejected():
		return
	case s.proving:
		s.prove(t)
	case t.accepted():
		s.kept = append(s.kept, t)
		if !self {
			s.best = t
			s.renew(max(t.number, 0))
		}
	case self:
		s.drop(s.best.dir)
		s.best, s.tested = t, true
		s.renew(0)
	case t.failed == 1 && t.ok == 0 && t.number != relative:
		s.later = append(s.later, t)
	case !t.rejected() && t.ok > 0:
		return
	case len(s.kept) == 0 && t.goal > 0 && t.goal >= s.best.goal:
		s.drop(s.best.dir)
		s.best = t
		s.renew(max(t.number, 0))
	default:
		s.refused[keyOf(t.script)] = true
		s.drop(t.dir)
	}
	s.now = nil
}

// prove takes in the last runs of an accepted script.
func (s *shrinker) prove(t trial) {
	if t.proven() {
		s.good = t.number + 1
	} else {
		s.bad = t.number
	}
	if t.proven() || s.good == 0 {
		s.drop(s.proof.dir)
		s.proof = t
	}
}

// drop removes the directory of a run that is no longer shown.
func (s *shrinker) drop(dir string) {
	if dir == "" {
		return
	}
	if err := s.hunt.Keep.remove(s.hunt.Keep.path(dir)); err != nil && s.hunt.Err == nil {
		s.hunt.Err = err
	}
}

// Shrunk is a script that is handed out, or why none is.
type Shrunk struct {
	Goal string `json:"goal"`
	// Script reached the goal in Reached of Runs runs. If Proven, these runs had no part in its choice, and File holds
	// it as a scenario.
	Script  script.Script `json:"script"`
	Size    script.Size   `json:"size"`
	Reached int           `json:"reached"`
	Runs    int           `json:"runs"`
	Proven  bool          `json:"proven"`
	File    string        `json:"file,omitempty"`    // File and RunDir are relative to the directory of the hunt
	RunDir  string        `json:"run_dir,omitempty"` // of a run of it; "": none was kept
	Claim   string        `json:"claim,omitempty"`

	Others  []string `json:"others,omitempty"`
	Trials  int      `json:"trials"` // number of scripts tried
	All     int      `json:"all_runs"`
	Took    int64    `json:"took_ms"`
	Stopped string   `json:"stopped,omitempty"` // why it is not as small as possible; "": nothing smaller reproduces
}

// result returns the result of the shrinking so far; nil if nothing was found.
func (s *shrinker) result() *Shrunk {
	if s == nil || s.goal == "" {
		return nil
	}
	out := &Shrunk{
		Goal: s.goal, Trials: s.steps, All: s.phase.runs, Took: s.phase.spent.Milliseconds(), Others: s.others,
		Stopped: s.stopped, Claim: s.last.Claim,
	}
	t := s.best
	if s.proving && s.proof.runs() > 0 {
		t, out.Proven = s.proof, s.good > 0
	}
	out.Script, out.Reached, out.Runs, out.RunDir = t.script, t.ok, t.runs(), t.dir
	out.Size = s.hunt.Scripts.Size(t.script)
	if out.HandedOut() {
		out.File = DirFound + "/" + out.Goal + ".yaml"
	}
	return out
}

// HandedOut reports whether the script reproduces.
func (x *Shrunk) HandedOut() bool { return x != nil && x.Proven }

// reached reports whether a run of the shrinking succeeded. The verdict must say that the goal was reached, and
// nothing may speak against the run except other counts that had to be zero. The run is unsure if the goal was not
// judged, or if something else makes doubtful what was found.
//
// Example: a machine that stands still for 300 ms explains a double grant. The script may be as good as it was.
func reached(r results.Report, goal string, others []string) (ok, unsure bool) {
	i := slices.IndexFunc(r.Expectations, func(x results.ExpectationResult) bool { return x.Name == goal })
	if i < 0 {
		return false, true
	}
	x := r.Expectations[i]
	ok = x.Verdict == results.Pass && (r.Verdict == results.Pass || r.Verdict == results.Fail && len(others) > 0)
	return ok, !ok && r.Verdict == results.Unknown && (x.Got == nil || *x.Got > 0)
}
