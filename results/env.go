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
	FileObserved = "observed.jsonl" // what the service said when steps asked it; none where nobody asked
	FileDrawn    = "drawn.yaml"     // the schedule as it was drawn, as a scenario
	FileVerdict  = "verdict.json"
	FileReport   = "report.html"
	DirHistory   = "history"
	DirLogs      = "logs"
	DirLatency   = "latency"
)

// Note is what a lock says of a measure between two figures, both included.
type Note struct {
	Measure string  `json:"measure"`
	Least   float64 `json:"least"`
	Most    float64 `json:"most"`
	Text    string  `json:"text"`
}

// Env is env.json: all that the judge needs beside the history, and what a reader must know to believe the figures.
// The engine writes it once at the start and again at the end.
type Env struct {
	Schema   string `json:"schema"` // EnvSchema
	Run      string `json:"run"`    // id of the run
	Scenario string `json:"scenario"`
	Seed     uint64 `json:"seed"`
	Version  string `json:"version"` // of lockquake
	Started  string `json:"started"` // RFC 3339
	Replay   string `json:"replay"`  // the command that repeats the run
	// the command that runs the schedule as it was drawn; "" where there is none
	Drawn string `json:"drawn,omitempty"`

	Provider       string            `json:"provider"`
	ProviderReason string            `json:"provider_reason"` // why this one
	Cluster        map[string]string `json:"cluster"`         // what the nodes run on
	Service        map[string]string `json:"service"`         // versions and settings, the retry policy included
	// of the servers, and what they counted: what may explain a finding
	Settings []Setting `json:"settings,omitempty"`
	// what ran the clients, where it is not the program that ran the scenario: a path or an image
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
	// there is no lock: users go ahead at once, and what is judged is what they did to the resource
	NoLock bool `json:"no_lock,omitempty"`
	// the lock tells its holders of a loss; of another program, its hello says that
	Tells bool `json:"tells_losses,omitempty"`
	// Fair says that grants go to those who wait in the order of their asking; Majority is who must agree on one, nil
	// where one server decides. Runs of older releases have neither.
	Fair     bool      `json:"fair,omitempty"`
	Majority *Majority `json:"majority,omitempty"`
	// Terse says that servers break connections without a word, as backends.Servers has it.
	Terse      bool   `json:"terse,omitempty"`
	Workload   string `json:"workload"`   // "" for steps only
	Increments bool   `json:"increments"` // each acknowledged write adds one to what the lock protects
	// Writes is what the workload's writes mean beside, as workloads.Meaning names it; Terms are the numbers that they
	// are judged by.
	Writes   string           `json:"writes,omitempty"`
	Terms    map[string]int64 `json:"terms,omitempty"`
	Resource string           `json:"resource"`
	Guard    string           `json:"guard"`
	// Replicas names the processes that are replicas of the resource: what counts, a majority of them has done.
	Replicas []string `json:"replicas,omitempty"`
	Directed bool     `json:"directed"` // by steps
	Users    int      `json:"users"`
	// People are the users that steps name, with their nodes: each is user 0 of a client of its own.
	People map[string]string `json:"people,omitempty"`
	// ResourceNodes are the nodes of what the lock protects.
	ResourceNodes []string `json:"resource_nodes,omitempty"`

	// Kept says that the servers, their network and the agent are those of an earlier run, which left them clean.
	// The proof is what was seen of them before this run's clients were connected. Fresh is why the servers of an
	// earlier run were not kept; "" where there were none, or none was to be kept.
	Kept bool `json:"kept"`
	// the directory of the run that started them, as seen from the one that this run's is in
	KeptFrom  string  `json:"kept_from,omitempty"`
	KeptProof []Proof `json:"kept_proof,omitempty"`
	Fresh     string  `json:"fresh,omitempty"`

	Start int64 `json:"start"` // ns of CLOCK_MONOTONIC: the workload was let go
	End   int64 `json:"end"`   // ns: no more acquires were begun
	// Measured is what figures are made of, where the run had a warm-up; nil: all from Start to End.
	Measured *Interval `json:"measured,omitempty"`

	// Readings are what servers and clients had counted before the workload was let go, and before it was stopped; with
	// a warm-up, at both ends of what was measured. Between the first and the last are those of the servers alone, just
	// before one was killed.
	Readings []Reading `json:"readings,omitempty"`
	// Footprints are what the clients had of the machine when the load began, and after each third of it; none where
	// that could not be seen.
	Footprints []Footprints `json:"footprints,omitempty"`
	// Contents is what the service kept; nil: it was not asked.
	Contents *Contents `json:"contents,omitempty"`
	// Acquires and Releases are what all servers together were asked for each, in a run of steps in which one user is
	// alone and nothing is broken.
	Acquires []int64 `json:"acquire_requests,omitempty"`
	Releases []int64 `json:"release_requests,omitempty"`

	// ServerCores is how much of the machine one server can use at most: its limit, or 1 where one thread of it
	// answers; 0: all of it.
	ServerCores float64 `json:"server_cores,omitempty"`

	// MustBeZero are the counts that had to be 0 unless the scenario named them. Releases that did not record it had
	// firstZeros.
	MustBeZero []string `json:"must_be_zero,omitempty"`
	// Notes are what the lock says of figures that it is known for.
	Notes []Note `json:"notes,omitempty"`
	// ClockSteps are the moves of the machine's wall clock against its monotonic one; WallClock says that the service
	// ends grants by it.
	ClockSteps []ClockStep `json:"clock_steps,omitempty"`
	WallClock  bool        `json:"wall_clock,omitempty"`

	// Hung are clients that did not end when they were told to, though their processes lived and were not stopped.
	Hung []Hung `json:"hung,omitempty"`

	// Stopped are servers that were seen stopped during the load though no fault asked for it.
	Stopped []Stopped `json:"stopped,omitempty"`

	Finished    bool     `json:"finished"`              // the engine came to its end; false is a truncated run
	Interrupted bool     `json:"interrupted,omitempty"` // by a signal; what was there is judged
	Recovered   bool     `json:"recovered"`             // the service served again after the heal
	FinalRead   bool     `json:"final_read"`            // the resource was read at the end (true where there is none)
	Refuted     []string `json:"refuted,omitempty"`     // steps that were done, and must not be: the run fails
	// steps that had to be done and were not; each is among Unknown, too
	Missed []Missed `json:"missed,omitempty"`
	// reasons why no pass may be given: a step that was not met, dropped events
	Unknown  []string `json:"unknown,omitempty"`
	Warnings []string `json:"warnings,omitempty"`

	Clients []ClientStats `json:"clients"`
}

// Stopped is a stretch in which every thread of a server was seen stopped.
type Stopped struct {
	Node string `json:"node"`
	From int64  `json:"from"` // ns of CLOCK_MONOTONIC
	To   int64  `json:"to"`
}

// Missed is a step with `outcome: ok` that was not done.
type Missed struct {
	Text string `json:"text"` // as among Unknown
	From int64  `json:"from"` // ns of CLOCK_MONOTONIC: it was ordered
	To   int64  `json:"to"`   // ns: its answer came, or its deadline was over
	// Within is its deadline in ns, where that passed; 0: the answer was a certain no.
	Within int64 `json:"within,omitempty"`
}

// The timings of a run. TimeUp is the sum of those that begin with its name, TimeReady and TimeHello side by side; the
// others are one after another.
const (
	TimeUp      = "up"
	TimeReset   = "up_reset"   // where servers are kept: until they were shown to be clean, or not to be
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
	TimeDown       = "down" // teardown of all nodes, or of all but the servers where these are kept
)

// ClockStep is a move of the machine's wall clock against its monotonic one: set by somebody, or by a machine that was
// suspended.
type ClockStep struct {
	Time int64 `json:"time"`  // ns of CLOCK_MONOTONIC at which it was seen
	By   int64 `json:"by_ns"` // ns, forward or (negative) back
}

// Interval is a stretch of a run, in ns of CLOCK_MONOTONIC. To is 0 where the run was cut short before its end.
type Interval struct {
	From int64 `json:"from"`
	To   int64 `json:"to"`
}

// Proof is one thing that had to be as it was when the servers began to serve.
type Proof struct {
	What     string `json:"what"`
	Evidence string `json:"evidence"`
}

// ClientStats is what a node said of itself at its end.
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
	// Lost says that it ended without its last word although no fault asked for that: what it did after the Recorded
	// events is not known. Ended is how its process was seen to end; "" where nobody saw that.
	Lost   bool             `json:"lost,omitempty"`
	Ended  string           `json:"ended,omitempty"`
	Errors map[string]int64 `json:"errors,omitempty"`
}

// tells says whether holders are told of a loss: by the lock, or by all programs in its place.
func (e Env) tells() bool {
	tells, foreign := true, false
	for _, c := range e.Clients {
		if _, client := history.ClientOf(c.Name); client && c.Foreign {
			foreign, tells = true, tells && c.Tells
		}
	}
	return foreign && tells || !foreign && e.Tells
}

// Client is what program a node is, in its own words.
type Client struct {
	Process   string            `json:"process"`
	Software  string            `json:"software"`            // its version
	Libraries map[string]string `json:"libraries,omitempty"` // modules that its lock is made of, with their versions
	Foreign   bool              `json:"foreign,omitempty"`   // it is not lockquake's own
	// one that is not lockquake's own says so: its locks tell of a loss
	Tells bool `json:"tells,omitempty"`
}

// ReportClient is a program that was judged, and the nodes that ran it.
type ReportClient struct {
	Nodes []string `json:"nodes"`
	Client
}

// lackingEnds tells which processes' histories may lack their last events: of those that were killed or are lost, or
// had no room for events.
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

// Reading is what servers and clients have counted up to a moment. Who did not tell is left out.
type Reading struct {
	Time int64 `json:"time"` // ns of CLOCK_MONOTONIC
	// by server: how many processes it has had, a new one counts from zero; nil: not recorded
	Starts   map[string]int   `json:"starts,omitempty"`
	Requests map[string]int64 `json:"requests,omitempty"` // by server: what it was asked since it started
	// by server: how many connections it took since it started
	Connections   map[string]int64 `json:"connections,omitempty"`
	Notifications map[string]int64 `json:"notifications,omitempty"` // by client: how often watches woke its users
	// by node, and of the engine: user and system time; clients within the engine's process count with it
	CPU map[string]int64 `json:"cpu_ns,omitempty"`
	// by server, in its own words: writes to disk that it waited for
	Syncs map[string]Syncs `json:"syncs,omitempty"`
	// processor time that all programs of the machine have used since it started; 0: not known
	Machine int64 `json:"machine_cpu_ns,omitempty"`
}

// Footprints are what clients had of the machine at a moment, by name. Who could not be looked at is left out.
type Footprints struct {
	Time int64                `json:"time"` // ns of CLOCK_MONOTONIC
	Of   map[string]Footprint `json:"of"`
}

// Footprint is what the processes of one client had.
type Footprint struct {
	Memory      int64 `json:"memory"` // bytes that were in memory and of no file
	Descriptors int64 `json:"descriptors"`
	Threads     int64 `json:"threads"`
}

// Syncs is how often a server had its log written to disk, and how long that took in all.
type Syncs struct {
	N  int64 `json:"n"`
	NS int64 `json:"ns"`
}

// Hung is a client that was waited for in vain.
type Hung struct {
	Name  string `json:"name"`
	Until int64  `json:"until"` // ns: it was seen to live, and its calls had not returned
}

// SameMachine names what of Env.Host must be equal for figures to be comparable.
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
	Drawn    string   `json:"drawn,omitempty"` // the command that runs the schedule as it was drawn
	Provider string   `json:"provider"`
	Backend  string   `json:"backend"`
	Lock     string   `json:"lock"`

	// Clients are the programs that asked for the lock, and those that stood in for the resource; Program is as in
	// env.json.
	Clients []ReportClient `json:"clients"`
	Program string         `json:"program,omitempty"`

	Versions map[string]string `json:"versions"`   // of the servers and of the libraries
	Timings  map[string]int64  `json:"timings_ms"` // as in env.json

	Kept      bool    `json:"kept"` // this and the next two as in env.json
	KeptProof []Proof `json:"kept_proof,omitempty"`
	Fresh     string  `json:"fresh,omitempty"`

	// Clocks is what the errors of clocks that were compared with the run's may hide; nil where all clocks are one.
	Clocks *ReportClocks `json:"clocks,omitempty"`

	About     []string            `json:"about,omitempty"`   // of the scenario: what is told first
	NoLock    bool                `json:"no_lock,omitempty"` // as in Env: nothing about grants is judged
	Judged    Judged              `json:"judged"`
	Counts    map[string]*int64   `json:"counts"`              // null: not judged
	Measures  map[string]*float64 `json:"measures"`            // null: not judged
	Failovers []Failover          `json:"failovers,omitempty"` // servers that were killed, in the order of time
	Strength  []string            `json:"strength"`            // what each zero is worth
	Uncovered Uncovered           `json:"uncovered,omitempty"`

	Expectations []ExpectationResult  `json:"expectations"`
	Faults       []FaultResult        `json:"faults"`
	Latency      map[string]Quantiles `json:"latency_ms"` // acquire, hold, release, handoff
	Phases       []PhaseLatency       `json:"phases"`     // before, during and after each fault
	Findings     []Finding            `json:"findings"`
	Warnings     []string             `json:"warnings"`
	RunDir       string               `json:"run_dir"`
}

// Uncovered are counts above zero that tell of trouble and that no expectation names: the verdict does not speak of
// them.
type Uncovered map[string]int64

// Add adds those of another run.
func (u Uncovered) Add(more Uncovered) {
	for name, n := range more {
		u[name] += n
	}
}

// String lists them by name; "" where there are none.
func (u Uncovered) String() string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(u)) {
		parts = append(parts, fmt.Sprintf("%s %d", name, u[name]))
	}
	return strings.Join(parts, ", ")
}

// ReportSchema names the version of verdict.json.
const ReportSchema = "lockquake/verdict/1"

// Judged is how much there was to judge. A run without a lock has accesses alone.
type Judged struct {
	Grants   int64 `json:"grants"`
	Entitled int64 `json:"entitled"` // of the grants: those that were entitled when they came into hand
	Events   int64 `json:"events"`
	Effects  int64 `json:"effects"` // reads and writes that the resource served or refused
}

// Subject returns how much there was to judge, and of what: each a grant, or an access of the resource where there is
// no lock.
func (r *Report) Subject() (n int64, what string) {
	if r.NoLock {
		return r.Judged.Effects, "access"
	}
	return r.Judged.Grants, "grant"
}

// ExpectationResult is one expectation held against what was found.
type ExpectationResult struct {
	Name    string   `json:"name"`
	Want    string   `json:"want"`
	Got     *float64 `json:"got"`
	Verdict Verdict  `json:"verdict"`
	Reason  string   `json:"reason,omitempty"`
	Default bool     `json:"default"` // not named by the scenario
}

// FaultResult is one injection as the report shows it; times in ms since the workload was let go.
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
	// by how much it or its heal was later than planned: "bit 5.8 s late"
	Late string `json:"late,omitempty"`
}

// Operations are what is timed, in the order of a lock's life.
var Operations = []string{"acquire", "hold", "release", "handoff"}

// Quantiles is a latency distribution in ms; nil where nothing was timed.
type Quantiles struct {
	N    int64    `json:"n"`
	P50  *float64 `json:"p50"`
	P90  *float64 `json:"p90"`
	P95  *float64 `json:"p95,omitempty"` // not in records of older releases
	P99  *float64 `json:"p99"`
	P999 *float64 `json:"p999"`
	Max  *float64 `json:"max"`
}

// PhaseLatency is the latency within one stretch of the run.
type PhaseLatency struct {
	Name    string               `json:"name"` // "before", "pause 1", "after pause 1", ...
	FromMS  float64              `json:"from_ms"`
	ToMS    float64              `json:"to_ms"`
	Latency map[string]Quantiles `json:"latency_ms"`
}

// Between sums up what was counted between two readings. It is not ok where somebody is in only one of them, or
// began to count anew.
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
