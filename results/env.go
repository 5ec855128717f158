package results

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/lockquake/lockquake/history"
)

// The files of a run directory.
const (
	FileScenario = "scenario.yaml"
	FileEnv      = "env.json"
	FileFaults   = "faults.jsonl"
	FileObserved = "observed.jsonl" // the service's answers to questions of steps; absent if none asked
	FileDrawn    = "drawn.yaml"     // the schedule as drawn, as a scenario
	FileVerdict  = "verdict.json"
	FileReport   = "report.html"
	DirHistory   = "history"
	DirLogs      = "logs"
	DirLatency   = "latency"
)

// Note is a lock's remark on a measure between two values, both included.
type Note struct {
	Measure string  `json:"measure"`
	Least   float64 `json:"least"`
	Most    float64 `json:"most"`
	Text    string  `json:"text"`
}

// Env is env.json: all that the judge needs in addition to the history, and what a reader must know to trust the
// figures. The engine writes it once at the start and again at the end.
type Env struct {
	Schema   string `json:"schema"` // EnvSchema
	Run      string `json:"run"`    // id of the run
	Scenario string `json:"scenario"`
	Seed     uint64 `json:"seed"`
	Version  string `json:"version"` // of lockquake
	Started  string `json:"started"` // RFC 3339
	Replay   string `json:"replay"`  // the command that repeats the run
	// the command that runs the schedule as drawn; "" without one
	Drawn string `json:"drawn,omitempty"`

	Provider       string            `json:"provider"`
	ProviderReason string            `json:"provider_reason"` // why this provider
	Cluster        map[string]string `json:"cluster"`         // the platform of the nodes
	Service        map[string]string `json:"service"`         // versions and settings, the retry policy included
	// of the servers, and their counters: possible explanations of a finding
	Settings []Setting `json:"settings,omitempty"`
	// the program of the clients, if it is not the one that ran the scenario: a path or an image
	Program string `json:"program,omitempty"`
	// kernel, cores, memory, load averages before and after
	Host map[string]string `json:"host"`
	// modules that the lock is made of, with their versions
	Libraries map[string]string `json:"libraries"`
	Timings   map[string]int64  `json:"timings_ms"` // of each phase; the names are explained below

	Backend string `json:"backend"`
	Lock    string `json:"lock"`
	TTL     int64  `json:"ttl_ns"`
	Token   string `json:"token"` // "none", "service", "home-made"
	Expires bool   `json:"expires"`
	// Permits is how many users may hold one lock at once; left out: one
	Permits  int   `json:"permits,omitempty"`
	Recovery int64 `json:"recovery_ns"`
	// there is no lock: users go ahead at once, and their accesses to the resource are judged
	NoLock bool `json:"no_lock,omitempty"`
	// the lock notifies its holders of a loss; another program says that in its hello
	Tells bool `json:"tells_losses,omitempty"`
	// Fair says that waiting users are granted the lock in the order of their requests. Majority says who must agree
	// on a grant, nil if one server decides. Runs of older releases have neither.
	Fair     bool      `json:"fair,omitempty"`
	Majority *Majority `json:"majority,omitempty"`
	// Terse says that servers break connections without an error answer: an error they answer with is about the
	// request (see backends.Servers).
	Terse      bool   `json:"terse,omitempty"`
	Workload   string `json:"workload"`   // "" for steps only
	Increments bool   `json:"increments"` // each acknowledged write adds one to what the lock protects
	// Writes is the further meaning of the workload's writes, as named by workloads.Meaning. Terms are the numbers
	// for judging them.
	Writes   string           `json:"writes,omitempty"`
	Terms    map[string]int64 `json:"terms,omitempty"`
	Resource string           `json:"resource"`
	Guard    string           `json:"guard"`
	// Replicas names the processes that are replicas of the resource: an access counts once a majority has done it.
	Replicas []string `json:"replicas,omitempty"`
	Directed bool     `json:"directed"` // driven by steps
	Users    int      `json:"users"`
	// People maps the users that steps name to their nodes: each is user 0 of a client of its own.
	People map[string]string `json:"people,omitempty"`
	// ResourceNodes are the nodes of what the lock protects.
	ResourceNodes []string `json:"resource_nodes,omitempty"`

	// Kept says that the servers, their network and the agent are those of an earlier run, which left them clean.
	// Proof is what was observed of them before this run's clients were connected. Fresh is why the servers of an
	// earlier run were not kept; "" if there were none, or none was to be kept.
	Kept bool `json:"kept"`
	// the directory of the run that started them, relative to the parent of this run's directory
	KeptFrom  string  `json:"kept_from,omitempty"`
	KeptProof []Proof `json:"kept_proof,omitempty"`
	Fresh     string  `json:"fresh,omitempty"`

	Start int64 `json:"start"` // ns of CLOCK_MONOTONIC: start of the workload
	End   int64 `json:"end"`   // ns: no acquires begin after it
	// Measured is the interval of the figures if the run had a warm-up; nil: from Start to End.
	Measured *Interval `json:"measured,omitempty"`

	// Readings are the counters of servers and clients before the start and before the stop of the workload. With a
	// warm-up they are taken at both ends of the measured time. Between the first and the last are those of the
	// servers alone, taken just before one was killed.
	Readings []Reading `json:"readings,omitempty"`
	// Footprints are the clients' use of the machine at the start of the load and after each third of it. They are
	// empty if that could not be observed.
	Footprints []Footprints `json:"footprints,omitempty"`
	// Contents is what the service kept; nil: it was not asked.
	Contents *Contents `json:"contents,omitempty"`
	// Acquires and Releases are the requests to all servers for each of these calls. They come from a run by steps
	// with a single user and no faults.
	Acquires []int64 `json:"acquire_requests,omitempty"`
	Releases []int64 `json:"release_requests,omitempty"`

	// ServerCores is the maximum of the machine that one server can use: its limit, or 1 if a single thread answers;
	// 0 means all cores.
	ServerCores float64 `json:"server_cores,omitempty"`

	// MustBeZero lists the counts that had to be 0 unless the scenario named them. Releases that did not record it
	// had firstZeros.
	MustBeZero []string `json:"must_be_zero,omitempty"`
	// Notes are the lock's remarks on figures that it is known for.
	Notes []Note `json:"notes,omitempty"`
	// ClockSteps are the moves of the machine's wall clock against its monotonic one. WallClock says that the service
	// ends grants by the wall clock.
	ClockSteps []ClockStep `json:"clock_steps,omitempty"`
	WallClock  bool        `json:"wall_clock,omitempty"`

	// Hung lists clients that did not end on request although their processes lived and were not stopped.
	Hung []Hung `json:"hung,omitempty"`

	// Stopped lists servers that were observed stopped during the load although no fault asked for it.
	Stopped []Stopped `json:"stopped,omitempty"`

	Finished    bool     `json:"finished"`              // the engine reached its end; false for a truncated run
	Interrupted bool     `json:"interrupted,omitempty"` // by a signal; the recorded part is judged
	Recovered   bool     `json:"recovered"`             // the service served again after the heal
	FinalRead   bool     `json:"final_read"`            // the resource was read at the end (true if there is none)
	Refuted     []string `json:"refuted,omitempty"`     // steps that were done and must not be: the run fails
	// steps that were not done and had to be; each is in Unknown, too
	Missed []Missed `json:"missed,omitempty"`
	// reasons that rule out a pass: an unmet step, dropped events
	Unknown  []string `json:"unknown,omitempty"`
	Warnings []string `json:"warnings,omitempty"`

	Clients []ClientStats `json:"clients"`
}

// Stopped is an interval in which every thread of a server was observed stopped.
type Stopped struct {
	Node string `json:"node"`
	From int64  `json:"from"` // ns of CLOCK_MONOTONIC
	To   int64  `json:"to"`
}

// Missed is a step with `outcome: ok` that was not done.
type Missed struct {
	Text string `json:"text"` // as among Unknown
	From int64  `json:"from"` // ns of CLOCK_MONOTONIC at which it was ordered
	To   int64  `json:"to"`   // ns of its answer, or of the end of its deadline
	// Within is its deadline in ns, if that passed; 0: the answer was a certain no.
	Within int64 `json:"within,omitempty"`
}

// The timings of a run. TimeUp is the sum of those that start with its name, with TimeReady and TimeHello in
// parallel; the others follow each other.
const (
	TimeUp      = "up"
	TimeReset   = "up_reset"   // with kept servers: until they were shown to be clean, or not
	TimeOpen    = "up_open"    // network, containers or namespaces, not yet started
	TimeStart   = "up_start"   // until every process was started
	TimeServe   = "up_serve"   // from then until the service serves
	TimeHello   = "up_hello"   // from then until every client and the resource said hello
	TimeConnect = "up_connect" // until every client is connected to the service
	// from the start of the run (of the process, for its first run) to the first judged grant
	TimeFirstGrant = "first_grant"
	TimeLoad       = "load"
	TimeHeal       = "heal"
	TimeSettle     = "settle"
	TimeDown       = "down" // teardown of all nodes, or of all except kept servers
)

// ClockStep is a move of the machine's wall clock against its monotonic one: it was set, or the machine was
// suspended.
type ClockStep struct {
	Time int64 `json:"time"`  // ns of CLOCK_MONOTONIC at which it was observed
	By   int64 `json:"by_ns"` // ns, forward or (negative) back
}

// Interval is a part of a run, in ns of CLOCK_MONOTONIC. To is 0 if the run was cut short before its end.
type Interval struct {
	From int64 `json:"from"`
	To   int64 `json:"to"`
}

// Span returns the whole interval.
func (i Interval) Span() Span { return Span{Interval: i, Length: i.To - i.From} }

// Span is a time within an interval. It is shorter than the interval if it has gaps.
type Span struct {
	Interval
	Length int64 // ns
	// Queued: other users may have been granted the lock in it, one after the other. Standstills can delay each of
	// these hand-overs.
	Queued bool
}

// Proof is one condition that had to be the same as when the servers began to serve.
type Proof struct {
	What     string `json:"what"`
	Evidence string `json:"evidence"`
}

// ClientStats is a node's report about itself at its end.
type ClientStats struct {
	Name string `json:"name"`
	Client
	Recorded  int64 `json:"recorded"`
	Dropped   int64 `json:"dropped"`
	Stall     int64 `json:"stall_ns"`
	Cycles    int64 `json:"cycles"`
	Unstarted int64 `json:"unstarted"` // arrivals of the open loop that came due and never got a user
	Lag       int64 `json:"lag_ns"`
	CPU       int64 `json:"cpu_ns"`
	Dead      bool  `json:"dead"` // it was killed
	// Lost says that it ended without a final report although no fault asked for that: its actions after the Recorded
	// events are unknown. Ended is how its process was observed to end; "" if that was not observed.
	Lost   bool             `json:"lost,omitempty"`
	Ended  string           `json:"ended,omitempty"`
	Errors map[string]int64 `json:"errors,omitempty"`
}

// tells reports whether holders are notified of a loss: by the lock, or by all programs in its place.
func (e Env) tells() bool {
	tells, foreign := true, false
	for _, c := range e.Clients {
		if _, client := history.ClientOf(c.Name); client && c.Foreign {
			foreign, tells = true, tells && c.Tells
		}
	}
	return foreign && tells || !foreign && e.Tells
}

// Client is a node's description of its program.
type Client struct {
	Process   string            `json:"process"`
	Software  string            `json:"software"`            // its version
	Libraries map[string]string `json:"libraries,omitempty"` // modules of its lock, with their versions
	Foreign   bool              `json:"foreign,omitempty"`   // it is not lockquake's own
	// a foreign program says so: its locks notify of a loss
	Tells bool `json:"tells,omitempty"`
}

// ReportClient is a judged program, and the nodes that ran it.
type ReportClient struct {
	Nodes []string `json:"nodes"`
	Client
}

// lackingEnds returns a function that reports whether the history of a process may lack its last events: the process
// was killed or lost, or had no room for events.
func (e Env) lackingEnds() func(process string) bool {
	told := map[string]bool{}
	for _, c := range e.Clients {
		told[c.Name] = c.Dead || c.Lost || c.Dropped > 0
	}
	return func(process string) bool {
		lacks, known := told[process]
		return lacks || !known && !e.Finished
	}
}

// Reading has the counters of servers and clients at a moment. Nodes that did not answer are left out.
type Reading struct {
	Time int64 `json:"time"` // ns of CLOCK_MONOTONIC
	// by server: number of its processes so far; a new one counts from zero; nil: not recorded
	Starts   map[string]int   `json:"starts,omitempty"`
	Requests map[string]int64 `json:"requests,omitempty"` // by server: requests since its start
	// by server: accepted connections since its start
	Connections   map[string]int64 `json:"connections,omitempty"`
	Notifications map[string]int64 `json:"notifications,omitempty"` // by client: how often watches woke its users
	// by node and for the engine: user and system time; clients within the engine's process count as the engine
	CPU map[string]int64 `json:"cpu_ns,omitempty"`
	// by server, as it counts them: writes to disk that it waited for
	Syncs map[string]Syncs `json:"syncs,omitempty"`
	// processor time of all programs of the machine since its start; 0: unknown
	Machine int64 `json:"machine_cpu_ns,omitempty"`
}

// Footprints are the clients' uses of the machine at a moment, by name. Clients that could not be observed are left
// out.
type Footprints struct {
	Time int64                `json:"time"` // ns of CLOCK_MONOTONIC
	Of   map[string]Footprint `json:"of"`
}

// Footprint is the use of the machine by one client's processes.
type Footprint struct {
	Memory      int64 `json:"memory"` // bytes resident in memory and not backed by a file
	Descriptors int64 `json:"descriptors"`
	Threads     int64 `json:"threads"`
}

// Syncs is how often a server synced its log to disk, and the total time of that.
type Syncs struct {
	N  int64 `json:"n"`
	NS int64 `json:"ns"`
}

// Hung is a client that did not end while it was waited for.
type Hung struct {
	Name  string `json:"name"`
	Until int64  `json:"until"` // ns: last time it was observed alive with calls that had not returned
}

// SameMachine lists the keys of Env.Host that must be equal for figures to be comparable.
var SameMachine = []string{"os", "arch", "kernel", "cores", "memory"}

// EnvSchema names the version of env.json.
const EnvSchema = "lockquake/env/1"

// Report is verdict.json.
type Report struct {
	Schema   string   `json:"schema"` // ReportSchema
	Scenario string   `json:"scenario"`
	Claim    string   `json:"claim"`
	Verdict  Verdict  `json:"verdict"`
	Reasons  []string `json:"reasons"` // why it is not a pass; empty for a pass
	Seed     uint64   `json:"seed"`
	Replay   string   `json:"replay"`
	Drawn    string   `json:"drawn,omitempty"` // the command that runs the schedule as drawn
	Provider string   `json:"provider"`
	Backend  string   `json:"backend"`
	Lock     string   `json:"lock"`

	// Clients are the programs that asked for the lock, and foreign ones in place of the resource. Program is as in
	// env.json.
	Clients []ReportClient `json:"clients"`
	Program string         `json:"program,omitempty"`

	Versions map[string]string `json:"versions"`   // of the servers and of the libraries
	Timings  map[string]int64  `json:"timings_ms"` // as in env.json

	Kept      bool    `json:"kept"` // this and the next two as in env.json
	KeptProof []Proof `json:"kept_proof,omitempty"`
	Fresh     string  `json:"fresh,omitempty"`

	// Clocks says what clock errors may hide; nil if there is only one clock.
	Clocks *ReportClocks `json:"clocks,omitempty"`

	About     []string            `json:"about,omitempty"`   // of the scenario: what is shown first
	NoLock    bool                `json:"no_lock,omitempty"` // as in Env: nothing about grants is judged
	Judged    Judged              `json:"judged"`
	Counts    map[string]*int64   `json:"counts"`              // null: not judged
	Measures  map[string]*float64 `json:"measures"`            // null: not judged
	Failovers []Failover          `json:"failovers,omitempty"` // servers that were killed, in the order of time
	Strength  []string            `json:"strength"`            // the significance of each zero
	Uncovered Uncovered           `json:"uncovered,omitempty"`

	Expectations []ExpectationResult  `json:"expectations"`
	Properties   []Property           `json:"properties,omitempty"` // what the scenario asks about the lock
	Faults       []FaultResult        `json:"faults"`
	Latency      map[string]Quantiles `json:"latency_ms"` // acquire, hold, release, handoff
	Phases       []PhaseLatency       `json:"phases"`     // before, during and after each fault
	Findings     []Finding            `json:"findings"`
	Warnings     []string             `json:"warnings"`
	RunDir       string               `json:"run_dir"`
}

// Uncovered holds counts above zero that mean trouble and have no expectation: the verdict ignores them.
type Uncovered map[string]int64

// Add adds the counts of another run.
func (u Uncovered) Add(more Uncovered) {
	for name, n := range more {
		u[name] += n
	}
}

// String lists the counts by name; "" without any.
func (u Uncovered) String() string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(u)) {
		parts = append(parts, fmt.Sprintf("%s %d", name, u[name]))
	}
	return strings.Join(parts, ", ")
}

// ReportSchema names the version of verdict.json.
const ReportSchema = "lockquake/verdict/1"

// Judged counts what there was to judge. A run without a lock has accesses only.
type Judged struct {
	Grants   int64 `json:"grants"`
	Entitled int64 `json:"entitled"` // grants that were entitled when the user got them
	Events   int64 `json:"events"`
	Effects  int64 `json:"effects"` // reads and writes that the resource served or refused
}

// Subject returns the number and the kind of what was judged: grants, or accesses of the resource if there is no
// lock.
func (r *Report) Subject() (n int64, what string) {
	if r.NoLock {
		return r.Judged.Effects, "access"
	}
	return r.Judged.Grants, "grant"
}

// ExpectationResult is one expectation and its verdict.
type ExpectationResult struct {
	Name    string   `json:"name"`
	Want    string   `json:"want"`
	Got     *float64 `json:"got"`
	Verdict Verdict  `json:"verdict"`
	Reason  string   `json:"reason,omitempty"`
	Default bool     `json:"default"` // not named by the scenario
}

// FaultResult is one injection as the report shows it; times in ms since the start of the workload.
type FaultResult struct {
	Name     string           `json:"name"`
	Selector string           `json:"selector,omitempty"` // the target as the scenario wrote it
	Target   string           `json:"target"`
	Params   string           `json:"params,omitempty"`
	StartMS  float64          `json:"start_ms"`
	EndMS    float64          `json:"end_ms"`
	Misses   int              `json:"misses"`
	Receipt  history.Receipt  `json:"receipt"`
	Healed   *history.Receipt `json:"healed"`
	// how much later than planned it bit or was healed: "bit 5.8 s late"
	Late string `json:"late,omitempty"`
}

// Operations are the timed operations, in the order of a lock's life.
var Operations = []string{"acquire", "hold", "release", "handoff"}

// Quantiles is a latency distribution in ms; nil if nothing was timed.
type Quantiles struct {
	N    int64    `json:"n"`
	P50  *float64 `json:"p50"`
	P90  *float64 `json:"p90"`
	P95  *float64 `json:"p95,omitempty"` // not in records of older releases
	P99  *float64 `json:"p99"`
	P999 *float64 `json:"p999"`
	Max  *float64 `json:"max"`
}

// PhaseLatency is the latency within one phase of the run.
type PhaseLatency struct {
	Name    string               `json:"name"` // "before", "pause 1", "after pause 1", ...
	FromMS  float64              `json:"from_ms"`
	ToMS    float64              `json:"to_ms"`
	Latency map[string]Quantiles `json:"latency_ms"`
}

// Between returns the sum of the counts between two readings. It is not ok if a node is in only one of them, or
// restarted its counter.
func Between(before, after map[string]int64) (sum int64, ok bool) {
	if len(before) == 0 || len(before) != len(after) {
		return 0, false
	}
	for name, n := range after {
		was, told := before[name]
		if !told || n < was {
			return 0, false
		}
		sum += n - was
	}
	return sum, true
}
