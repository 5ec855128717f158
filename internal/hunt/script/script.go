// Package script holds the tries of a hunt. A try is what one run does to a lock. It is a value that can be drawn at
// random, mutated, made smaller, and written as a scenario that `lockquake run` takes as it is.
//
// Example: a script of one crowd, one fault and one visit. Four clients contend for lock-0 for 4 s. At 600 ms the
// leader is paused for 900 ms. User A asks at 1.1 s, stops for 3 s at a point in the middle of its release, and
// continues.
package script

import (
	"slices"
	"time"
)

// Script is one try. Its times count from the moment at which the load begins. A Script that Draw, Mutate or
// Reductions returned can be written as a scenario. Two scripts share nothing that either changes.
type Script struct {
	For    time.Duration `json:"for"`           // of the load
	TTL    time.Duration `json:"ttl,omitempty"` // 0: the space's
	Crowd  Crowd         `json:"crowd"`
	Faults []Injection   `json:"faults,omitempty"`
	Visits []Visit       `json:"visits,omitempty"`
	// End is what the run's end waits for, instead of For, if there is no crowd.
	End *Await `json:"end,omitempty"`
}

// Crowd is the workload in the background. Without clients there is none, and the visits are alone.
type Crowd struct {
	Clients int           `json:"clients,omitempty"`
	Users   int           `json:"users,omitempty"` // of each client
	Locks   int           `json:"locks,omitempty"` // each cycle takes one at random
	Hold    time.Duration `json:"hold,omitempty"`
	Think   time.Duration `json:"think,omitempty"`
	Timeout time.Duration `json:"timeout,omitempty"` // of one acquire, release, read or write
	Renew   bool          `json:"renew,omitempty"`   // users renew their grants while they hold them
	// Shared is the share of acquires in shared mode. Such a crowd protects nothing; any other counts under its
	// locks.
	Shared float64 `json:"shared,omitempty"`
}

// Injection is one fault at one time.
type Injection struct {
	Use  string        `json:"use"`
	On   string        `json:"on"`             // a target, or the user of a visit
	Keys string        `json:"keys,omitempty"` // the fault's own, as YAML: "by: 50ms"
	At   time.Duration `json:"at"`
	For  time.Duration `json:"for,omitempty"` // 0: until the end, or until it ends by itself
	As   string        `json:"as,omitempty"`  // the name that an Await uses for it

	After *Await `json:"after,omitempty"` // what it waits for, instead of At
	Until *Await `json:"until,omitempty"` // what its heal waits for, instead of For
}

// Visit is what one named user does beside the crowd: it requests a lock, keeps it for a while and releases it. The
// outcome does not matter.
type Visit struct {
	User   string        `json:"user"`             // A, B, ...: each has its own process
	Lock   int           `json:"lock,omitempty"`   // the number of the lock
	Shared bool          `json:"shared,omitempty"` // it asks for shared mode
	At     time.Duration `json:"at"`               // of the acquire
	// Patience is how long the acquire may wait; 0: to the end of the run.
	Patience time.Duration `json:"patience,omitempty"`
	Hold     time.Duration `json:"hold,omitempty"`   // from the acquire to the release; 0: no release
	Cancel   time.Duration `json:"cancel,omitempty"` // from the acquire to its cancellation; 0: none
	Renew    time.Duration `json:"renew,omitempty"`  // from the acquire to a renewal; 0: none
	Write    time.Duration `json:"write,omitempty"`  // from the acquire to a read and a write under the lock; 0: none
	Close    bool          `json:"close,omitempty"`  // it closes its lock instead of releasing it
	Arm      *Arm          `json:"arm,omitempty"`

	After *Await `json:"after,omitempty"` // what the acquire waits for, instead of At
	Until *Await `json:"until,omitempty"` // what the release waits for, instead of Hold
}

// Arm stops a visit's user the next time that it passes a point.
type Arm struct {
	Point  string        `json:"point"`
	Before string        `json:"before"`         // the call of the visit before which it is armed: acquire, release, ...
	Die    bool          `json:"die,omitempty"`  // the process ends there; else it waits
	Wait   time.Duration `json:"wait,omitempty"` // from that call until it continues; 0: never
	Until  *Await        `json:"until,omitempty"`
}

// Await is what a step waits for instead of a time.
type Await struct {
	Kind  string `json:"kind"` // bitten, led, point, validity-over, event, fact
	Of    string `json:"of,omitempty"`
	User  string `json:"user,omitempty"`
	Lock  int    `json:"lock,omitempty"`
	Point string `json:"point,omitempty"`
	Event string `json:"event,omitempty"`
	Node  string `json:"node,omitempty"`
	Fact  string `json:"fact,omitempty"`
	Is    string `json:"is,omitempty"`
}

// Size measures a script, the most important part first.
type Size struct {
	Faults int           `json:"faults"` // injections, and points that are armed
	Users  int           `json:"users"`
	Steps  int           `json:"steps"` // of the scenario, and entries of its schedule
	Parts  int           `json:"parts"` // what could be left out of these
	Times  int           `json:"times"` // waits for a time rather than for an event
	Takes  time.Duration `json:"takes"` // all these times
}

// Clone returns a copy that shares nothing with x.
func (x Script) Clone() Script {
	x.Faults, x.Visits, x.End = slices.Clone(x.Faults), slices.Clone(x.Visits), x.End.clone()
	for i := range x.Faults {
		f := &x.Faults[i]
		f.After, f.Until = f.After.clone(), f.Until.clone()
	}
	for i := range x.Visits {
		v := &x.Visits[i]
		v.After, v.Until = v.After.clone(), v.Until.clone()
		if v.Arm != nil {
			v.Arm = new(*v.Arm)
			v.Arm.Until = v.Arm.Until.clone()
		}
	}
	return x
}

func (a *Await) clone() *Await {
	if a == nil {
		return nil
	}
	return new(*a)
}
