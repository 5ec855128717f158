// Package results is what a run means: it reads a run directory, never a live thing, so that every verdict can be
// recomputed from disk. It is the contract of a checker; checkers/ has one file for each, and report/ draws and prints.
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

// Run is what the checkers are told about the run before its events.
type Run struct {
	TTL        int64     // ns
	Locks      []string  // names, by Event.Lock
	Token      string    // "none", "service" or "home-made"
	Expires    bool      // a dead holder's grant ends by itself
	Permits    int       // how many users may hold one lock at once; 0 is 1
	Recovery   int64     // ns: the lock's declared recovery bound
	NoLock     bool      // there is no lock: users go ahead at once
	Tells      bool      // the lock tells its holders of a loss
	Fair       bool      // grants go to those who wait in the order of their asking
	Majority   *Majority // who must agree on a grant; nil where one server decides
	Terse      bool      // servers break connections without a word: their errors are about requests
	Increments bool      // each acknowledged write adds one to what the lock protects
	// what the workload's writes mean beside: "sales", "seats", "transfers", "elements" or ""
	Writes    string
	Terms     map[string]int64 // numbers that they are judged by
	Directed  bool             // by steps: whoever asks does so because it was told to
	Stepped   bool             // by steps, with a workload beside them or not
	Resource  string           // "" where nothing is protected
	Protected []string         // the nodes of what is protected
	Guard     string           // of the resource
	// names of the processes that the resource consists of, where what a majority did counts; else none
	Replicas []string
	Faults   []history.Fault // in the order of their start
	// Observed is what the service said when steps asked it.
	Observed  []history.Observation
	Processes []history.Header // one per history file
	Dead      []string         // names of the clients that gave no last word: they were killed, or are lost
	Lost      []Lost           // clients, and processes of the resource, whose end no fault asked for
	// Readings are what servers and clients had counted before and at the end of the workload; between them, the
	// servers alone.
	Readings   []Reading
	Footprints []Footprints  // what the clients had, four times
	Hung       []Hung        // clients that lived, and did not end when they were told to
	Contents   *Contents     // what the service kept; nil: it was not asked
	Users      int           // how many there were
	Acquires   []int64       // what servers were asked for each acquire of a user who is alone
	Releases   []int64       // and for each release
	Clients    []ClientStats // what the nodes said of themselves at their end
	Cores      int           // of the machine that the clients run on; 0: not known
	Start      int64         // ns: the workload was let go
	End        int64         // ns: no more acquires were begun
	Measured   *Interval     // what figures are made of; nil: all of the run

	Still *Standstills // whole when the checkers finish; nil where nothing is known of them
}

// Figures returns what throughput, times and costs are made of: what lies behind the warm-up and before the heal, or
// all of the run where it had no warm-up. Violations are judged over everything.
func (r Run) Figures() (from, to int64) {
	if r.Measured == nil {
		return r.Start, r.End
	}
	return r.Measured.From, r.Measured.To
}

// Counts tells whether what began at t is part of a figure.
func (r Run) Counts(t int64) bool {
	return r.Measured == nil || t >= r.Measured.From && t < r.Measured.To
}

// RecoveryBound is how long a lock may stay without a grant after its holder is gone, in ns.
func (r Run) RecoveryBound() int64 {
	if r.Expires && r.Recovery > 0 {
		return r.Recovery
	}
	return r.TTL
}

// LockName is the name of a lock by its number.
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

// PlaceOf is the place that an event is about.
func PlaceOf(e *history.Event) Place { return Place{e.User, e.Lock} }

// Process finds the header of a process by name.
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
	// Finish returns the finding. Its name, and counts and measures that it does not tell, are added from the kind.
	Finish() Finding
}

// ProcessChecker is a Checker that must know which process an event comes from. ObserveFrom is called in place of
// Observe.
type ProcessChecker interface {
	// ObserveFrom takes the next event and the header of the file that it comes from.
	ObserveFrom(process *history.Header, e *history.Event)
}

// Stream makes something of the events of a run that several checkers look at, such as its holds: it is made once for
// all of them.
type Stream interface {
	// Follow has a checker see the events, and what the stream makes of them, in one order with the others that follow.
	// crashed is told, at most once, why the checker cannot go on.
	Follow(c Checker, crashed func(why any))
	Observe(e *history.Event)
	// Finish is called behind the last event, before that of the checkers.
	Finish()
}

// StreamKind is a Stream that kinds of checkers name.
type StreamKind struct{ New func(Run) Stream }

// What histograms of times tell apart, in ns. What took longer than an hour counts as one.
const (
	LowestLatency  = 1000
	HighestLatency = 3_600_000_000e3
)

// Timer is a Checker that timed the operations.
type Timer interface {
	// Latency returns how long each of the Operations took; those that nothing was timed of have N 0 and no figures.
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
	// Counts and Measures are what it yields in every run; null where the property was not judged.
	Counts   []Quantity
	Measures []Quantity
	// PerFault is what the names of its measures of single injections begin with; "": it has none.
	PerFault string
	// Resource tells that it rests on events of the resource, beside those of clients.
	Resource bool
	// Grants tells that it judges grants and holds, of which a run without a lock has none.
	Grants bool
	// Witnesses says how its witnesses are drawn. One of a kind that is not named here has a picture of its own.
	Witnesses []WitnessKind
	New       func(Run) Checker
	// Follows is what shows it the events, made once for all checkers of a run that name it; nil: it sees them by
	// itself.
	Follows *StreamKind
}

// WitnessKind says how a report draws the witnesses of a kind.
type WitnessKind struct {
	Name string // as in Witness.Kind
	Draw Drawing
	// Place orders the kinds that a picture may be about: 1 is the worst, and kinds without a place come last.
	Place int
	// Title returns the headline of a picture; who names the two holders, such as "two clients". Nil: the kind's name.
	Title func(w Witness, who string) string
}

// Drawing is what a report draws of a witness.
type Drawing uint8

// The drawings.
const (
	DrawWhole    Drawing = iota // a picture of its holds, or of two users at its time, with its text as a mark
	DrawOverlap                 // its two holds, and the time in which they overlap
	DrawEntitled                // the same, for two holders who were both entitled
	// its two holds: the resource applied an access of the first after the second was there
	DrawOvertaken
	DrawSaved   // the same, where the resource refused the access
	DrawRefused // its hold, and an access that the resource refused
	DrawRelease // a mark at a release that freed the first of its holds, which was somebody else's
	DrawServers // a mark at the time in which the two servers of its observations took writes
	DrawGap     // the last grant before its time and the first one after it
	DrawAside   // a mark in the picture of something else, where the scenario names its count
)

// Pictured reports whether a picture may be about a witness that is drawn so. The other drawings are parts of pictures.
func (d Drawing) Pictured() bool { return d <= DrawRefused }

// Aside returns kinds of witness that are drawn as marks alone.
func Aside(names ...string) (kinds []WitnessKind) {
	for _, name := range names {
		kinds = append(kinds, WitnessKind{Name: name, Draw: DrawAside})
	}
	return kinds
}

// Checkers is a list of them, in the order in which a report shows them.
type Checkers []CheckerKind

// Quantities returns every count and measure that a run is judged by. There is one more measure for each injection:
// see CheckerKind.PerFault.
func (cs Checkers) Quantities() []Quantity {
	var all []Quantity
	for _, k := range cs {
		all = slices.Concat(all, k.Counts, k.Measures)
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

// Names returns the names of them, sorted.
func (cs Checkers) Names() []string {
	set := map[string]bool{}
	for _, q := range cs.Quantities() {
		set[q.Name] = true
	}
	return slices.Sorted(maps.Keys(set))
}

// numbered is the measure of an injection, its number aside.
var numbered = regexp.MustCompile(`_[1-9][0-9]*$`)

// Has tells whether a run with these faults is judged by a count or measure of that name.
func (cs Checkers) Has(name string, faults []string) bool {
	return slices.Contains(cs.Names(), name) || numbered.MatchString(name) &&
		slices.ContainsFunc(faults, func(fault string) bool {
			return slices.ContainsFunc(cs, func(k CheckerKind) bool {
				return k.PerFault != "" && numbered.ReplaceAllString(name, "_") == FaultMeasure(k.PerFault, fault, "")
			})
		})
}

// unfit is what the name of a measure cannot have.
var unfit = regexp.MustCompile(`[^a-z0-9]+`)

// FaultMeasure is the name of the measure of one injection of a fault, by its number; perFault is as in CheckerKind.
func FaultMeasure(perFault, fault, id string) string {
	return perFault + "_" + strings.Trim(unfit.ReplaceAllString(strings.ToLower(fault), "_"), "_") + "_" + id
}

// IsTime tells whether a count or measure is a duration.
func IsTime(name string) bool { return strings.Contains(name, "_ms") }

// Quantity is a count or a measure.
type Quantity struct {
	Name string `json:"name"`
	// what it counts, in one sentence of Markdown; the glossary of docs/verdict.md is made of these
	Doc  string `json:"doc"`
	Tone Tone   `json:"tone,omitempty"`

	// Of names the chances of the count to go up, in words: "grants that ...". "": a zero of it has no strength.
	Of string `json:"-"`
	// First is its place among those that a report shows first, judged or not, from 1. The others follow by name, where
	// they were judged: 0.
	First int `json:"-"`
	// Explains names the counts that this one may cause. It is reported before them.
	Explains []string `json:"-"`
	// Column is its head in the table of several runs, in the order of First; "": it is not in it.
	Column string `json:"-"`
	// NeedsEnds tells that the quantity rests on when holds and waits ended: where a release or a grant was
	// dropped, it may count what never was.
	NeedsEnds bool `json:"-"`
	// NeedsAll tells that the quantity rests on what did not happen: where the last events of a process are missing,
	// too, it may count what never was.
	NeedsAll bool `json:"-"`
	// Timeless tells that no time decides it: it stands also where a clock moved.
	Timeless bool `json:"-"`
	// Outlived tells that holders who outlive their validity make it go up, whatever the lock does: a fault that stood
	// longer than planned excuses it.
	Outlived bool `json:"-"`
	// InStep tells that the quantity rests on users that ask in the same moment: a demand that is missed where many
	// were late is unknown.
	InStep bool `json:"-"`
	// MoreIsBetter tells that a comparison of runs takes less of it for worse; of the others, more is.
	MoreIsBetter bool `json:"-"`
}

// Tone says what a quantity above zero means.
type Tone string

// The tones.
const (
	Quiet     Tone = ""          // nothing by itself: it helps to understand the others
	Violation Tone = "violation" // what was promised was not kept, or harm was done
	Doubtful  Tone = "doubtful"  // something went wrong, and nobody broke a promise
	Saved     Tone = "saved"     // harm was kept away
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
	// processes whose last events are missing, so that a zero proves nothing
	Missing   []string  `json:"missing,omitempty"`
	Warnings  []string  `json:"warnings,omitempty"`
	Witnesses []Witness `json:"witnesses,omitempty"` // at most MaxWitnesses

	// Failovers are the servers' deaths in the order of time, where the checker counts what came after them. The report
	// has them.
	Failovers []Failover `json:"-"`

	// Spans holds the window of each measure that is the longest of several times.
	Spans map[string]Interval `json:"-"`

	// Ledger is what explains the violations of each lock; nil where nothing is known of that. ByLock is what was
	// found of each lock, where all counts of the finding depend on the excuses of other checkers.
	Ledger *Ledger          `json:"-"`
	ByLock map[uint16]int64 `json:"-"`
}

// NotApplicable makes f the finding of a property that does not apply to this run.
func (f Finding) NotApplicable(why string) Finding {
	f.Verdict, f.Skipped, f.Counts = Unknown, why, nil
	return f
}

// Lacking makes f the finding of a run in which something is missing without which nothing can be told; why is its
// warning.
func (f Finding) Lacking(why string) Finding {
	f = f.NotApplicable("")
	f.Warnings, f.Witnesses, f.ByLock = []string{why}, nil, nil
	return f
}

// Judged judges the one count of a checker, of which a violation might have come up as often as chances says.
func (f Finding) Judged(name string, n, chances int64) Finding {
	f.Verdict = VerdictOf(n)
	f.Counts = map[string]*int64{name: &n}
	f.Chances = map[string]Chances{name: {N: chances}}
	return f
}

// Prove adds a witness, while there is room.
func (f *Finding) Prove(w Witness) {
	if len(f.Witnesses) < MaxWitnesses {
		f.Witnesses = append(f.Witnesses, w)
	}
}

// VerdictOf is Violated where something was found.
func VerdictOf(n int64) Verdict {
	if n > 0 {
		return Violated
	}
	return Clean
}

// Chances is what a zero is worth: how often a count could have gone up.
type Chances struct {
	N  int64  `json:"n"`
	Of string `json:"of"` // Quantity.Of; the judge adds it
}

// MaxWitnesses bounds the witnesses of one finding; the counts are complete.
const MaxWitnesses = 10

// Witness is the very events that prove a violation.
type Witness struct {
	Kind   string          `json:"kind"` // "double_grant", "overlapping_hold", "stale_write", "fence_save", ...
	Lock   string          `json:"lock"`
	Text   string          `json:"text"` // one sentence with times relative to the start of the run
	From   int64           `json:"from"` // ns: the violation begins
	To     int64           `json:"to"`   // ns: and ends
	Holds  []HoldRef       `json:"holds,omitempty"`
	Events []history.Event `json:"events"`
	// Observed is what the service said that proves it.
	Observed []history.Observation `json:"observed,omitempty"`
}

// HoldRef is one hold of a witness, as it is drawn.
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

// MS writes a time of the run as people read it: milliseconds since the workload was let go.
func (r Run) MS(t int64) string {
	switch t {
	case Forever:
		return "the end of the run"
	case history.ValidUnknown:
		return "an unknown time"
	}
	return fmt.Sprintf("%.3f ms", float64(t-r.Start)/1e6)
}

// Milli turns nanoseconds into milliseconds.
func Milli(ns int64) float64 { return float64(ns) / 1e6 }
