package history

import "slices"

// Receipt is an independent observation of whether a fault bit, or of whether it was healed.
type Receipt struct {
	Status   ReceiptStatus `json:"status"`
	Evidence string        `json:"evidence"` // what was seen, by whom
	Time     int64         `json:"time"`     // ns of CLOCK_MONOTONIC at which it was seen
	// Sent is a time just before the signal that made the change was sent, so that its consequences are later; 0 if no
	// signal made it.
	Sent int64 `json:"sent,omitempty"`
	// Done is when what was asked for had been carried out, by the clock of whoever did it (ns of CLOCK_MONOTONIC):
	// before its effect was measured, which may take seconds. 0: not known.
	Done int64 `json:"done,omitempty"`
	// Slip is how much later (ns) than due that was: after the target was resolved, or after the end of the fault's
	// `for`. Waits on purpose, such as for a measurement before the fault, are no part of it.
	Slip int64 `json:"slip,omitempty"`
	// By is what did it, where a fault can be done in several ways: netem, queue, tbf; vdso, faketime.
	By string `json:"by,omitempty"`
	// Figures are numbers of the evidence, by name, where something reckons with them: round_trip_before_ms and
	// round_trip_ms of links (the median, over all links), packets that were sent on.
	Figures map[string]float64 `json:"figures,omitempty"`
}

// ReceiptStatus is the answer of a receipt.
type ReceiptStatus string

// The answers of a receipt.
const (
	Installed     ReceiptStatus = "installed"
	NotInstalled  ReceiptStatus = "not-installed"
	Indeterminate ReceiptStatus = "indeterminate"
	// NotMade is the answer for an injection that was left out, because it would have broken what the schedule
	// promises.
	NotMade ReceiptStatus = "not-made"
)

// Fault is one injection: a line of faults.jsonl.
type Fault struct {
	ID       int      `json:"id"`              // position among the run's injections, from 1
	Entry    int      `json:"entry"`           // index of the scenario's chaos entry or step, from 1; 0: not known
	Name     string   `json:"name"`            // the kind of trouble
	As       string   `json:"as,omitempty"`    // name given by a step
	Selector string   `json:"selector"`        // the target as the scenario wrote it
	Targets  []string `json:"targets"`         // the nodes it resolved to
	Peers    []string `json:"peers,omitempty"` // the nodes at the other ends of a link fault
	Target   string   `json:"target"`          // the same for people: "client-3 (user 17, lock-0)"
	User     *User    `json:"user,omitempty"`  // the holder, where the selector asked for one
	Grant    uint32   `json:"grant,omitempty"`
	Lock     string   `json:"lock,omitempty"`
	Params   string   `json:"params,omitempty"` // what it was asked to do, in words
	Planned  int64    `json:"planned"`          // ns: when the schedule wanted it
	For      int64    `json:"for,omitempty"`    // ns: how long the schedule wanted it to stand; 0: to the end
	Start    int64    `json:"start"`            // ns: when the injection began
	Bit      int64    `json:"bit"`              // ns: when it was seen to act; 0 when it was not
	// ns: how wrong Bit may be; 0 where whoever saw it has the run's clock
	BitError int64 `json:"bit_error,omitempty"`
	// ns: when the heal began, up to which the fault certainly acted; 0 when it never did
	Undo    int64    `json:"undo"`
	End     int64    `json:"end"`              // ns: when the heal was seen to be done; 0 when it never was
	Misses  int      `json:"misses"`           // targets that slipped away before this one
	Receipt Receipt  `json:"receipt"`          // of the injection
	Healed  *Receipt `json:"healed,omitempty"` // of the heal; nil where nothing is healed
	// who led after the target; nil where the fault was not aimed at a leader
	Lead *Lead `json:"lead,omitempty"`
	// which locks the targets had, of a service that spreads them over several leaders; nil: all, or the fault kills
	// nobody
	Shard *Shard `json:"shard,omitempty"`
	// what the fault does, by its own account; nil in records of older programs
	Traits *Traits `json:"traits,omitempty"`
}

// Shard is the part of the locks that servers lead.
type Shard struct {
	Locks   []string `json:"locks"`             // their names
	Unknown string   `json:"unknown,omitempty"` // why they are not known
}

// Has reports whether a lock is among them. All locks are in the shard of a service that has only one, and in one that
// is not known.
func (s *Shard) Has(lock string) bool {
	return s == nil || s.Unknown != "" || slices.Contains(s.Locks, lock)
}

// Traits describe the effects of a fault, so that readers of the record need not know faults by name.
type Traits struct {
	Kills bool `json:"kills,omitempty"` // the target's process ends
	// of a fault that kills: every target is started again; else servers alone are
	Returns bool `json:"returns,omitempty"`
	Halts   bool `json:"halts,omitempty"`    // the target's process does not run until the heal
	Slows   bool `json:"slows,omitempty"`    // the target's process gets less of a processor than it wants
	Idle    bool `json:"idle,omitempty"`     // nothing happens
	AtPeers bool `json:"at_peers,omitempty"` // it shows at the other ends of the links
	Cuts    bool `json:"cuts,omitempty"`     // nothing that is sent between the targets and the peers is answered
	// Began and Ended describe the fault's begin and end in a picture, such as "clock moved by {by}": the braces
	// hold a key of the fault, or peers. Where both are empty, the picture says that the fault begins and is
	// healed.
	Began string `json:"began,omitempty"`
	Ended string `json:"ended,omitempty"` // "" where the end is nothing that is seen
}

// Lead is who led a service after a fault was aimed at its leader. All times are ns of CLOCK_MONOTONIC.
type Lead struct {
	Old   string `json:"old,omitempty"`   // the node that led; "" where it is not known
	New   string `json:"new,omitempty"`   // the first other node that was seen to lead; "": nobody
	Epoch string `json:"epoch,omitempty"` // the new leader's epoch by its own account, where it tells one
	// Lag is the minimum number of bytes that the old leader had written and no follower had received just before From;
	// nil if unknown.
	Lag     *int64 `json:"lag_bytes,omitempty"`
	From    int64  `json:"from"`              // when the asking began
	Led     int64  `json:"led,omitempty"`     // when the new leader was first seen to lead
	Noticed int64  `json:"noticed,omitempty"` // when the old one first said that it does not lead
}
