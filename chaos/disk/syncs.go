package disk

import "time"

// DoSyncs is the order that delays the calls to fsync and similar system calls of a process and its descendants:
// SyncsArgs, answered with Syncs. The delays of several such orders add up, and each is undone separately. DoSynced
// reads the counts: no arguments, answered with Syncs.
const (
	DoSyncs  = "syncs"
	DoSynced = "synced"
)

// SyncsArgs says how long each call is delayed.
type SyncsArgs struct {
	By time.Duration `json:"by"`
	// Threads lists name prefixes of the threads to trace, if no others make such calls; empty means all.
	Threads []string `json:"threads,omitempty"`
}

// Syncs is what the agent saw itself.
type Syncs struct {
	// delayed since the process was started, including the current ones
	Calls   int64 `json:"calls"`
	Holding int   `json:"holding"` // of these, delayed at this moment
	// of these, released early: the process was paused, or its clock moved
	Early int64 `json:"early"`
	// the shortest delay of a call that was not released early; 0 if none has ended
	Least  time.Duration `json:"least"`
	Traced int           `json:"traced"`         // threads traced for such calls, according to the kernel
	Gone   bool          `json:"gone,omitempty"` // after an undo: the process had ended
	// after an undo: other orders that still delay them, according to that node
	Others int `json:"-"`
}
