// Package results judges a run from its run directory, never from live processes, so that every verdict can be
// recomputed from disk. It defines the contract of a checker; checkers/ has one file for each, and report/ draws and
// prints.
package results

import (
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"

	"github.com/lockquake/lockquake/history"
)

// Verdict is the answer of a checker (clean, violated, unknown) or of a run (pass, fail, unknown).
type Verdict string

// The verdicts.
const (
	Clean    Verdict = "clean"
	Violated Verdict = "violated"
	Unknown  Verdict = "unknown"
	Pass     Verdict = "pass"
	Fail     Verdict = "fail"
)

// Run is what checkers know about a run before its events.
type Run struct {
	TTL        int64     // ns
	Locks      []string  // names, by Event.Lock
	Token      string    // "none", "service" or "home-made"
	Expires    bool      // a dead holder's grant ends by itself
	Permits    int       // how many users may hold one lock at once; 0 is 1
	Recovery   int64     // ns: the lock's declared recovery bound
	NoLock     bool      // there is no lock: users go ahead at once
	Tells      bool      // the lock notifies its holders of a loss
	Fair       bool      // waiting users are granted the lock in the order of their requests
	Majority   *Majority // who must agree on a grant; nil if one server decides
	Terse      bool      // servers break connections without an error answer: their errors are about requests
	Increments bool      // each acknowledged write adds one to what the lock protects
	// further meaning of the workload's writes: "sales", "seats", "transfers", "elements" or ""
	Writes    string
	Terms     map[string]int64 // numbers for judging them
	Directed  bool             // by steps: users only do what steps tell them to
	Stepped   bool             // by steps, with or without a workload
	Resource  string           // "" if nothing is protected
	Protected []string         // the nodes of what is protected
	Guard     string           // of the resource
	// processes of a resource whose effects count once a majority did them; else none
	Replicas []string
	Faults   []history.Fault // in the order of their start
	// Observed has the service's answers to questions of steps.
	Observed  []history.Observation
	Processes []history.Header // one per history file
	Dead      []string         // clients without a final report: they were killed, or are lost
	Lost      []Lost           // clients and processes of the resource that ended although no fault asked for it
	// Readings are the counters of servers and clients before and at the end of the workload; in between, of servers
	// only.
	Readings   []Reading
	Footprints []Footprints  // the clients' use of the machine, four times
	Hung       []Hung        // clients that lived and did not end on request
	Contents   *Contents     // what the service kept; nil: it was not asked
	Users      int           // number of users
	Acquires   []int64       // requests to servers for each acquire of a single user
	Releases   []int64       // and for each release
	Clients    []ClientStats // the nodes' reports about themselves at their end
	Cores      int           // of the clients' machine; 0: unknown
	Start      int64         // ns: start of the workload
	End        int64         // ns: no acquires begin after it
	Measured   *Interval     // the interval of the figures; nil: all of the run

	Still *Standstills // complete when the checkers finish; nil if unknown
}

// Figures returns the interval of throughput, times and costs: from the warm-up's end to the heal, or the whole run
// if it had no warm-up. Violations are judged over everything.
func (r Run) Figures() (from, to int64) {
	if r.Measured == nil {
		return r.Start, r.End
	}
	return r.Measured.From, r.Measured.To
}

// Counts reports whether figures include what began at t.
func (r Run) Counts(t int64) bool {
	return r.Measured == nil || t >= r.Measured.From && t < r.Measured.To
}

// RecoveryBound returns how long a lock may stay without a grant after its holder is gone, in ns.
func (r Run) RecoveryBound() int64 {
	if r.Expires && r.Recovery > 0 {
		return r.Recovery
	}
	return r.TTL
}

// LockName returns the name of a lock by its number.
func (r Run) LockName(i uint16) string {
	if int(i) < len(r.Locks) {
		return r.Locks[i]
	}
	return fmt.Sprintf("lock #%d", i)
}

// Place is one user's view of what one lock protects.
type Place struct {
	User history.User
	Lock uint16
}

// PlaceOf returns the place that an event is about.
func PlaceOf(e *history.Event) Place { return Place{e.User, e.Lock} }

// Process returns the header of a process by name.
func (r Run) Process(name string) (history.Header, bool) {
	for _, p := range r.Processes {
		if p.Process == name {
			return p, true
		}
	}
	return history.Header{}, false
}

// Checker judges one property from the events of a run in the order of time. It is used once.
type Checker interface {
	// Observe takes the next event; the pointer is only valid during the call.
	Observe(e *history.Event)
	// Finish returns the finding. The caller adds its name from the kind, and the counts and measures that it lacks.
	Finish() Finding
}

// ProcessChecker is a Checker that must know the process of each event. ObserveFrom is called instead of Observe.
type ProcessChecker interface {
	// ObserveFrom takes the next event and the header of the file that it comes from.
	ObserveFrom(process *history.Header, e *history.Event)
}

// Stream derives something from the events of a run, such as its holds, once for the several checkers that need it.
type Stream interface {
	// Follow passes the events, and what the stream derives from them, to a checker in one order with its other
	// followers. crashed is called at most once, with the reason why the checker cannot go on.
	Follow(c Checker, crashed func(why any))
	Observe(e *history.Event)
	// Finish is called after the last event, before the checkers' Finish.
	Finish()
}

// StreamKind is a Stream that checker kinds refer to.
type StreamKind struct{ New func(Run) Stream }

// Resolution of the histograms of times, in ns. Times above an hour count as one hour.
const (
	LowestLatency  = 1000
	HighestLatency = 3_600_000_000e3
)

// Timer is a Checker that timed the operations.
type Timer interface {
	// Latency returns the times of each of the Operations; one without samples has N 0 and no figures.
	Latency() map[string]Quantiles
	// Phases returns the same before the first fault, and during and after each.
	Phases() []PhaseLatency
	// WriteLogs writes HdrHistogram logs into the latency folder of the run directory. started is as in Env.
	WriteLogs(dir, started string) error
}

// CheckerKind is an entry of the list of checkers.
type CheckerKind struct {
	Name string
	Doc  string // the property, in one sentence
	// Counts and Measures are its results in every run; null if the property was not judged.
	Counts   []Quantity
	Measures []Quantity
	// PerFault is the prefix of its measures of single injections; "": it has none.
	PerFault string
	// Resource says that it depends on events of the resource, in addition to those of clients.
	Resource bool
	// Grants says that it judges grants and holds; a run without a lock has none.
	Grants bool
	// Witnesses says how its witnesses are drawn. A kind that is not named here has its own picture.
	Witnesses []WitnessKind
	New       func(Run) Checker
	// Follows is the stream that passes it the events, made once for all checkers of a run that name it; nil: it gets
	// them directly.
	Follows *StreamKind
}

// WitnessKind says how a report draws the witnesses of a kind.
type WitnessKind struct {
	Name string // as in Witness.Kind
	Draw Drawing
	// Place orders the kinds that a picture may be about: 1 is the worst, and kinds without a place come last.
	Place int
	// Title returns the headline of a picture; who names the two holders, such as "two clients". Nil: the kind's
	// name.
	Title func(w Witness, who string) string
}

// Drawing is how a report draws a witness.
type Drawing uint8

// The drawings.
const (
	DrawWhole    Drawing = iota // a picture of its holds, or of two users at its time, with its text as a mark
	DrawOverlap                 // its two holds, and the time in which they overlap
	DrawEntitled                // the same, for two holders who were both entitled
	// its two holds: the resource applied an access of the first after the second began
	DrawOvertaken
	DrawSaved   // the same, if the resource refused the access
	DrawRefused // its hold, and an access that the resource refused
	DrawRelease // a mark at a release that freed the first of its holds, which belonged to another user
	DrawServers // a mark at the time in which both servers of its observations took writes
	DrawGap     // the last grant before its time and the first one after it
	DrawAside   // a mark in another picture, if the scenario names its count
)

// Pictured reports whether a picture may be about a witness drawn like this. The other drawings are parts of
// pictures.
func (d Drawing) Pictured() bool { return d <= DrawRefused }

// Aside returns kinds of witness that are drawn as marks only.
func Aside(names ...string) (kinds []WitnessKind) {
	for _, name := range names {
		kinds = append(kinds, WitnessKind{Name: name, Draw: DrawAside})
	}
	return kinds
}

// Checkers is a list of checkers in the order of a report.
type Checkers []CheckerKind

// Quantities returns every count and measure of a run. There is one more measure for each injection: see
// CheckerKind.PerFault.
func (cs Checkers) Quantities() []Quantity {
	var all []Quantity
	for _, k := range cs {
		all = append(append(all, k.Counts...), k.Measures...)
	}
	return all
}

// MustBeZero returns the counts that must be 0 in every run whose scenario does not name them: those of violations.
func (cs Checkers) MustBeZero() []string {
	var names []string
	for _, q := range cs.Quantities() {
		if q.Tone == Violation {
			names = append(names, q.Name)
		}
	}
	return names
}

// Names returns the names of all quantities, sorted.
func (cs Checkers) Names() []string {
	set := map[string]bool{}
	for _, q := range cs.Quantities() {
		set[q.Name] = true
	}
	return slices.Sorted(maps.Keys(set))
}

// numbered matches the number in the name of an injection's measure.
var numbered = regexp.MustCompile(`_[1-9][0-9]*$`)

// Has reports whether a run with these faults has a count or measure of that name.
func (cs Checkers) Has(name string, faults []string) bool {
	named := func(q Quantity) bool { return q.Name == name }
	return slices.ContainsFunc(cs.Quantities(), named) || numbered.MatchString(name) &&
		slices.ContainsFunc(faults, func(fault string) bool {
			return slices.ContainsFunc(cs, func(k CheckerKind) bool {
				return k.PerFault != "" && numbered.ReplaceAllString(name, "_") == FaultMeasure(k.PerFault, fault, "")
			})
		})
}

// unfit matches what the name of a measure cannot contain.
var unfit = regexp.MustCompile(`[^a-z0-9]+`)

// FaultMeasure returns the name of the measure of one injection of a fault, by its number; perFault is as in
// CheckerKind.
func FaultMeasure(perFault, fault, id string) string {
	return perFault + "_" + strings.Trim(unfit.ReplaceAllString(strings.ToLower(fault), "_"), "_") + "_" + id
}

// IsTime reports whether a count or measure is a duration.
func IsTime(name string) bool { return strings.Contains(name, "_ms") }

// Quantity is a count or a measure.
type Quantity struct {
	Name string `json:"name"`
	// what it counts, in one sentence of Markdown; the glossary of docs/verdict.md consists of these
	Doc  string `json:"doc"`
	Tone Tone   `json:"tone,omitempty"`

	// Of describes the chances of the count to go up: "grants that ...". "": a zero of it has no strength.
	Of string `json:"-"`
	// First is its rank, from 1, among the quantities that a report always shows first. 0: it follows by name, if it
	// was judged.
	First int `json:"-"`
	// Explains names the counts that this one may cause. It is reported before them.
	Explains []string `json:"-"`
	// Column is its header in the table of several runs, ordered by First; "": it has no column.
	Column string `json:"-"`
	// NeedsEnds says that the quantity depends on when holds and waits ended. If a release or a grant was dropped, it
	// may count what never was.
	NeedsEnds bool `json:"-"`
	// NeedsAll says that the quantity depends on what did not happen. If the last events of a process are missing, it
	// may count what never was.
	NeedsAll bool `json:"-"`
	// Timeless says that the quantity does not depend on time: it is valid even if a clock moved.
	Timeless bool `json:"-"`
	// Outlived says that holders who outlive their validity raise the count, whatever the lock does. A fault that
	// stood longer than planned excuses it.
	Outlived bool `json:"-"`
	// InStep says that the quantity depends on users that ask at the same moment: an unmet demand is unknown if many
	// were late.
	InStep bool `json:"-"`
	// MoreIsBetter says that comparisons treat a decrease as worse; for other quantities an increase is worse.
	MoreIsBetter bool `json:"-"`
}

// Tone is the meaning of a quantity above zero.
type Tone string

// The tones.
const (
	Quiet     Tone = ""          // nothing by itself: it helps to understand the others
	Violation Tone = "violation" // a promise was broken, or harm was done
	Doubtful  Tone = "doubtful"  // something went wrong, but no promise was broken
	Saved     Tone = "saved"     // harm was prevented
)

// Finding is what one checker found.
type Finding struct {
	Checker  string              `json:"checker"`
	Verdict  Verdict             `json:"verdict"`
	Counts   map[string]*int64   `json:"counts,omitempty"`   // nil: not judged
	Measures map[string]*float64 `json:"measures,omitempty"` // nil: not judged
	Skipped  string              `json:"skipped,omitempty"`  // why the property does not apply to this run
	Chances  map[string]Chances  `json:"chances,omitempty"`  // of a count: how often it could have gone up
	// of a count: what only a standstill of the machine explains
	Excused map[string]Excused `json:"excused,omitempty"`
	// processes with missing last events, so that a zero proves nothing
	Missing   []string  `json:"missing,omitempty"`
	Warnings  []string  `json:"warnings,omitempty"`
	Witnesses []Witness `json:"witnesses,omitempty"` // at most MaxWitnesses

	// Failovers are the servers' deaths in the order of time, if the checker counts what followed them. They go into
	// the report.
	Failovers []Failover `json:"-"`

	// Spans holds, for each measure that is the longest of several times, the longest of them.
	Spans map[string][]Span `json:"-"`

	// Ledger explains the violations of each lock; nil if nothing is known about that. ByLock is the count of each
	// lock, if all counts of the finding depend on the excuses of other checkers.
	Ledger *Ledger          `json:"-"`
	ByLock map[uint16]int64 `json:"-"`
}

// NotApplicable returns f as the finding of a property that does not apply to this run.
func (f Finding) NotApplicable(why string) Finding {
	f.Verdict, f.Skipped, f.Counts = Unknown, why, nil
	return f
}

// Lacking returns f as the finding of a run that lacks what a judgement needs; why is its warning.
func (f Finding) Lacking(why string) Finding {
	f = f.NotApplicable("")
	f.Warnings, f.Witnesses, f.ByLock = []string{why}, nil, nil
	return f
}

// Judged sets the single count of a checker; chances is how often a violation might have come up.
func (f Finding) Judged(name string, n, chances int64) Finding {
	f.Verdict = VerdictOf(n)
	f.Counts = map[string]*int64{name: &n}
	f.Chances = map[string]Chances{name: {N: chances}}
	return f
}

// Prove adds a witness if there is room.
func (f *Finding) Prove(w Witness) {
	if len(f.Witnesses) < MaxWitnesses {
		f.Witnesses = append(f.Witnesses, w)
	}
}

// VerdictOf returns Violated for a count above zero, else Clean.
func VerdictOf(n int64) Verdict {
	if n > 0 {
		return Violated
	}
	return Clean
}

// Chances is the significance of a zero: how often a count could have gone up.
type Chances struct {
	N  int64  `json:"n"`
	Of string `json:"of"` // Quantity.Of; the judge adds it
}

// MaxWitnesses bounds the witnesses of one finding; the counts are complete.
const MaxWitnesses = 10

// Witness has the events that prove a violation.
type Witness struct {
	Kind   string          `json:"kind"` // "double_grant", "overlapping_hold", "stale_write", "fence_save", ...
	Lock   string          `json:"lock"`
	Text   string          `json:"text"` // one sentence with times relative to the start of the run
	From   int64           `json:"from"` // ns: the violation begins
	To     int64           `json:"to"`   // ns: and ends
	Holds  []HoldRef       `json:"holds,omitempty"`
	Events []history.Event `json:"events"`
	// Observed has the service's answers that prove it.
	Observed []history.Observation `json:"observed,omitempty"`
}

// HoldRef is one hold of a witness as drawn.
type HoldRef struct {
	User   history.User `json:"user"`
	Grant  uint32       `json:"grant"`
	Issued int64        `json:"issued"`
	Start  int64        `json:"start"` // ns: acquire ok
	End    int64        `json:"end"`   // ns: release invoke, loss or death; 0 when it never ended
	Valid  int64        `json:"valid"` // the latest end of its validity
	Token  uint64       `json:"token"`
}

// Forever is the end of what has not ended.
const Forever int64 = math.MaxInt64

// MS formats a time of the run for people: milliseconds since the start of the workload.
func (r Run) MS(t int64) string {
	switch t {
	case Forever:
		return "the end of the run"
	case history.ValidUnknown:
		return "an unknown time"
	}
	return fmt.Sprintf("%.3f ms", float64(t-r.Start)/1e6)
}

// Milli converts nanoseconds to milliseconds.
func Milli(ns int64) float64 { return float64(ns) / 1e6 }
