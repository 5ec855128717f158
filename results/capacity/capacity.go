// Package capacity finds how much load a lock takes, and where its curve bends. It reads the measurements of a
// sweep's runs and starts nothing: a sweep is a file, capacity.json, from which its report can be made again.
//
// A sweep has points. A point is a Setting (the users, the locks, the distance and so on), with one Sample for each
// run. A closed loop is swept over users; the Universal Scalability Law may explain its throughput. An open loop is
// searched for the highest rate that keeps the objective.
package capacity

import "github.com/lockquake/lockquake/results"

// Schema names the version of capacity.json.
const Schema = "lockquake/capacity/1"

// File is the name of the sweep in its directory; FileReport is the report for people.
const (
	File       = "capacity.json"
	FileReport = "capacity.html"
)

// Sweep is capacity.json.
type Sweep struct {
	Schema   string `json:"schema"`
	Scenario string `json:"scenario"` // the scenario of the points
	// ScenarioText is the scenario with --lock and --set but without the axes, before a point sets its own keys.
	ScenarioText string `json:"scenario_text,omitempty"`
	results.Origin
	Seed     uint64            `json:"seed"`
	Provider string            `json:"provider"`
	Attached bool              `json:"attached,omitempty"` // the servers are external
	Service  map[string]string `json:"service"`            // versions and settings
	// Objective is the bound for open loops, such as p99=20ms; nil: none was requested.
	Objective *Objective `json:"objective,omitempty"`
	// Asked are the rates, in acquires a second, to test against the objective; none: the highest such rate is
	// searched.
	Asked  []float64 `json:"asked_per_s,omitempty"`
	Repeat int       `json:"repeat"` // wanted runs of each point
	// Confirm is how many runs must keep the objective at the final rate of the search; 0: 3.
	Confirm  int     `json:"confirm,omitempty"`
	Warm     int64   `json:"warm_ns"`
	Measured int64   `json:"measured_ns"` // of each run, after the warm-up
	Points   []Point `json:"points"`
	// Left names the points that were not measured, each with the reason: the budget, an interruption.
	Left        []Left `json:"left,omitempty"`
	Interrupted bool   `json:"interrupted,omitempty"`
}

// Searches reports whether the sweep searches for the highest rate that keeps the objective.
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

// Setting identifies a point.
type Setting struct {
	Backend string `json:"backend"`
	Lock    string `json:"lock"`
	Nodes   int    `json:"nodes"` // members of the service
	Users   int    `json:"users"`
	Locks   int    `json:"locks"`
	Hold    int64  `json:"hold_ns"`
	TTL     int64  `json:"ttl_ns"`
	RTT     int64  `json:"rtt_ns"` // requested, added between clients and servers; 0: none
	// of a polling lock: spin, fixed, jittered, exponential, or default, the lock's own; "": the lock does not poll
	Retry string  `json:"retry"`
	Rate  float64 `json:"rate,omitempty"` // acquires offered a second; 0: a closed loop
	// Own says that each user has its own lock; Locks is then 1 for each of them.
	Own bool `json:"own_locks,omitempty"`
	// Set has the other swept keys of the scenario, such as "workload.think=5ms backend.persistence=always".
	Set string `json:"set,omitempty"`
}

// Point is a setting and its measurements.
type Point struct {
	Setting
	// Policy is the retry policy as the service describes it, such as "poll every 10ms +/- 50 %"; "": the lock does
	// not poll.
	Policy  string   `json:"retry_policy,omitempty"`
	Samples []Sample `json:"samples"`
}

// Sample is the measurement of one run after its warm-up. Latencies are of the acquire unless said otherwise; in an
// open loop from the intended start.
type Sample struct {
	Run     string `json:"run"`     // directory, relative to that of the sweep
	Order   int    `json:"order"`   // its number among all runs of the sweep, in the order of time, from 0
	Verdict string `json:"verdict"` // pass, fail, unknown
	// Spoilt is why the sample must not be used; "": it may.
	Spoilt string `json:"spoilt,omitempty"`
	// Counts are those that the verdict demands to be zero, such as double_grants, for the whole run including its
	// warm-up. Counts that were not judged are missing.
	Counts map[string]int64 `json:"counts,omitempty"`

	Cycles  float64            `json:"cycles_per_s"` // grants that ended with a release, a second
	Latency map[string]float64 `json:"latency_ms"`   // p50, p90, p99, p999, p9999, max, mean
	// number of latencies; 0: an older file does not have it
	Acquires int64 `json:"acquires,omitempty"`
	// mean time from one acquire to the next of the same user, without its think time
	Cycle    float64 `json:"cycle_ms"`
	HoldMean float64 `json:"hold_ms"` // mean time that a grant was in hand
	// median time from a release to the next grant; nil: no user waited
	Handoff *float64 `json:"handoff_ms"`
	// mean number of users between an acquire and the end of its release (for Little's law), counted independently
	InService float64 `json:"in_service"`
	// the part of the users of a closed loop that were not, without thinking: they were inside the generator; nil:
	// unknown
	Outside  *float64 `json:"outside,omitempty"`
	Requests *float64 `json:"requests_per_grant"`
	RTT      *float64 `json:"rtt_ms"` // measured between a client and a server; nil: not measured

	// applied by the resource; nil: no resource, or no writes
	Writes *float64 `json:"writes_per_s,omitempty"`
	// the part of all acknowledged writes, 0 to 1, missing in the final value; nil: not judged
	Lost *float64 `json:"lost_share,omitempty"`

	Offered float64 `json:"offered_per_s,omitempty"` // open loop
	// arrivals in the measured time, while Offered covers the whole load; 0: an older file does not have it
	Due      float64 `json:"due_per_s,omitempty"`
	Unserved int64   `json:"unserved,omitempty"` // arrivals that never got a user
	// delay of the start of a free user, p99: the generator's own lag
	Late float64 `json:"late_p99_ms,omitempty"`
	// LateStarts counts arrivals that began more than 1 ms late, for whatever reason.
	LateStarts int64 `json:"late_starts,omitempty"`

	// HandoffMean is how long a lock was free per cycle while a user waited for it: the mean of the handoffs, spread
	// over all cycles.
	HandoffMean *float64 `json:"handoff_mean_ms,omitempty"`

	// of several hosts the one with the fullest CPU, which CPU and Cores describe; "": there was only one
	Host  string             `json:"host,omitempty"`
	CPU   map[string]float64 `json:"cpu"`   // cores used, 1 is one whole core: servers, clients, supervisor
	Cores int                `json:"cores"` // of the machine
	// Machine is the cores used by all programs of the machine, including these; nil: unknown, as on another host
	// than the supervisor's.
	Machine *float64 `json:"machine_cores,omitempty"`
	// Busiest is the cores used by the busiest server; nil: unknown. ServerCores is the maximum for one server: its
	// limit, or 1 if a single thread answers; 0: all of the machine.
	Busiest     *float64 `json:"busiest_server_cores,omitempty"`
	ServerCores float64  `json:"server_cores,omitempty"`
	Fsync       *float64 `json:"fsync_ms,omitempty"` // mean of the servers' own figure
	// through the packet queue that replaces netem; nil: there is none, as with netem itself
	Packets *float64 `json:"packets_per_s,omitempty"`
}
