package disk

import "time"

// DoSyncs is the order that holds a process's calls to fsync and its like back, and those of its descendants:
// SyncsArgs, answered with Syncs. What several such orders of one process ask for adds up, and each is undone for
// itself. DoSynced asks how far it is: no arguments, answered with Syncs.
const (
	DoSyncs  = "syncs"
	DoSynced = "synced"
)

// SyncsArgs is how long each call is held.
type SyncsArgs struct {
	By time.Duration `json:"by"`
	// Threads is what the names of the threads to look at begin with, where others never make such a call; empty: all.
	Threads []string `json:"threads,omitempty"`
}

// Syncs is what the agent saw itself.
type Syncs struct {
	// held back since the process was started, those that are now included
	Calls   int64 `json:"calls"`
	Holding int   `json:"holding"` // of these, that are held at this moment
	// of these, that were let go before their time: the process was paused, or its clock moved
	Early int64 `json:"early"`
	// the shortest time for which one was held that was not let go early; 0 where none ended
	Least  time.Duration `json:"least"`
	Traced int           `json:"traced"`         // threads that are watched for such calls, as the kernel tells
	Gone   bool          `json:"gone,omitempty"` // after an undo: the process had ended
	// after an undo: other orders that still hold them, by the books of the node that is asked
	Others int `json:"-"`
}
