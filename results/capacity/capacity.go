// Package capacity says how much load a lock takes, and where it bends. It reads what the runs of a sweep measured and
// starts nothing: a sweep is a file, capacity.json, and its report can be made again from it.
//
// A sweep has points. A point is a Setting (so many users on so many locks at such a distance), and has one Sample for
// each run of it. A closed loop is swept over users: the curve of throughput may be explained by the Universal
// Scalability Law. An open loop is searched: the highest rate that keeps the objective.
package capacity

import "github.com/lockquake/lockquake/results"

// Schema names the version of capacity.json.
const Schema = "lockquake/capacity/1"

// File is the name of the sweep in its directory; FileReport is what people read.
const (
	File       = "capacity.json"
	FileReport = "capacity.html"
)

// Sweep is capacity.json.
type Sweep struct {
	Schema   string `json:"schema"`
	Scenario string `json:"scenario"` // the one whose points these are
	// ScenarioText is the scenario before a point sets its own keys: with --lock and --set, and without the axes.
	ScenarioText string `json:"scenario_text,omitempty"`
	results.Origin
	Seed     uint64            `json:"seed"`
	Provider string            `json:"provider"`
	Attached bool              `json:"attached,omitempty"` // somebody else runs the servers
	Service  map[string]string `json:"service"`            // versions and settings
	// Objective is what open loops have to keep, such as p99=20ms; nil: none was asked for.
	Objective *Objective `json:"objective,omitempty"`
	// Asked are the rates, in acquires a second, of which it was asked whether they keep the objective; none: the
	// highest such rate is searched.
	Asked  []float64 `json:"asked_per_s,omitempty"`
	Repeat int       `json:"repeat"` // runs wanted of each point
	// Confirm is how many runs must keep the objective at the rate that the search ends with; 0: 3.
	Confirm  int     `json:"confirm,omitempty"`
	Warm     int64   `json:"warm_ns"`
	Measured int64   `json:"measured_ns"` // of each run, behind the warm-up
	Points   []Point `json:"points"`
	// Left names the points that were not measured, each with the reason: the budget, an interruption.
	Left        []Left `json:"left,omitempty"`
	Interrupted bool   `json:"interrupted,omitempty"`
}

// Searches reports whether the highest rate that keeps the objective is looked for.
func (s Sweep) Searches() bool { return s.Objective != nil && len(s.Asked) == 0 }

// Objective is a bound on a quantile of the time from the intended start of an acquire to its grant.
type Objective struct {
	Quantile float64 `json:"quantile"` // 0.99 for p99
	Most     int64   `json:"most_ns"`
}

// Left is a point that was not measured.
type Left struct {
	Setting
	Why string `json:"why"`
}

// Setting is what tells a point from the others.
type Setting struct {
	Backend string `json:"backend"`
	Lock    string `json:"lock"`
	Nodes   int    `json:"nodes"` // members of the service
	Users   int    `json:"users"`
	Locks   int    `json:"locks"`
	Hold    int64  `json:"hold_ns"`
	TTL     int64  `json:"ttl_ns"`
	RTT     int64  `json:"rtt_ns"` // asked for, added between clients and servers; 0: none
	// of a polling lock: spin, fixed, jittered, exponential, or default, the lock's own; "": the lock does not poll
	Retry string  `json:"retry"`
	Rate  float64 `json:"rate,omitempty"` // acquires offered a second; 0: a closed loop
	// Own says that each user has a lock of its own; Locks is 1 then, for each of them.
	Own bool `json:"own_locks,omitempty"`
	// Set is the other keys of the scenario that were swept, such as "workload.think=5ms backend.persistence=always".
	Set string `json:"set,omitempty"`
}

// Point is a setting and what was measured with it.
type Point struct {
	Setting
	// Policy is the retry policy as the service describes it, such as "poll every 10ms +/- 50 %"; "": the lock does not
	// poll.
	Policy  string   `json:"retry_policy,omitempty"`
	Samples []Sample `json:"samples"`
}

// Sample is what one run measured, behind its warm-up. Latencies are of the acquire unless said otherwise: in an open
// loop from the intended start.
type Sample struct {
	Run     string `json:"run"`     // directory, as seen from that of the sweep
	Order   int    `json:"order"`   // its number among all runs of the sweep, in the order of time, from 0
	Verdict string `json:"verdict"` // pass, fail, unknown
	// Spoilt is why the sample must not be used at all; "": it may.
	Spoilt string `json:"spoilt,omitempty"`
	// Counts are those that the verdict demands to be zero, such as double_grants, as the whole run has them, its
	// warm-up too. One that was not judged is not there.
	Counts map[string]int64 `json:"counts,omitempty"`

	Cycles  float64            `json:"cycles_per_s"` // grants that ended with a release, a second
	Latency map[string]float64 `json:"latency_ms"`   // p50, p90, p99, p999, p9999, max, mean
	// that the latencies are of; 0: an older file does not tell
	Acquires int64 `json:"acquires,omitempty"`
	// mean time from one acquire to the next of the same user, but for its think time
	Cycle    float64 `json:"cycle_ms"`
	HoldMean float64 `json:"hold_ms"` // mean time that a grant was in hand
	// median time from a release to the next grant; nil: nobody waited
	Handoff *float64 `json:"handoff_ms"`
	// mean number of users between an acquire and the end of its release (for Little's law), counted by its own means
	InService float64 `json:"in_service"`
	// the part of the users of a closed loop who were not, though they do not think: they were inside the generator;
	// nil: not known
	Outside  *float64 `json:"outside,omitempty"`
	Requests *float64 `json:"requests_per_grant"`
	RTT      *float64 `json:"rtt_ms"` // that was measured between a client and a server; nil: not measured

	// that the resource applied; nil: there is no resource, or it was not written
	Writes *float64 `json:"writes_per_s,omitempty"`
	// the part of all acknowledged writes, 0 to 1, that the final value lacks; nil: not judged
	Lost *float64 `json:"lost_share,omitempty"`

	Offered float64 `json:"offered_per_s,omitempty"` // open loop
	// arrivals of the measured time, where Offered is that of the whole load; 0: an older file does not tell
	Due      float64 `json:"due_per_s,omitempty"`
	Unserved int64   `json:"unserved,omitempty"` // arrivals that never got a user
	// how late a user began who was free, p99: the generator's own lag
	Late float64 `json:"late_p99_ms,omitempty"`
	// LateStarts is arrivals that began more than 1 ms after their moment, for whatever reason.
	LateStarts int64 `json:"late_starts,omitempty"`

	// HandoffMean is how long a lock was free while somebody waited for it, a cycle: the mean of the handoffs, spread
	// over all cycles.
	HandoffMean *float64 `json:"handoff_mean_ms,omitempty"`

	// of several hosts that whose CPU was the fullest: CPU and Cores are its; "": all ran on one
	Host  string             `json:"host,omitempty"`
	CPU   map[string]float64 `json:"cpu"`   // cores used, 1 is one whole core: servers, clients, supervisor
	Cores int                `json:"cores"` // of the machine
	// Machine is the cores that all programs of the machine used, these among them; nil: not known, as on another host
	// than the supervisor's.
	Machine *float64 `json:"machine_cores,omitempty"`
	// Busiest is the cores that the busiest server used, and ServerCores what one can use at most: its limit, or 1
	// where one thread of it answers; nil and 0: not known, and all of the machine.
	Busiest     *float64 `json:"busiest_server_cores,omitempty"`
	ServerCores float64  `json:"server_cores,omitempty"`
	Fsync       *float64 `json:"fsync_ms,omitempty"` // mean of the servers' own figure
	// through the packet queue that stands in for netem; nil: there is none, as with netem itself
	Packets *float64 `json:"packets_per_s,omitempty"`
}
