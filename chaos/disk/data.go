package disk

import (
	"context"
	"fmt"

	"github.com/lockquake/lockquake/chaos"
)

// CanData is the capability of a DataHolder.
const CanData chaos.Capability = "data"

// DataHolder is a node with a data directory that can be looked into from outside.
type DataHolder interface {
	// HoldData opens the directory of the running process. What it returns is of use when the process is gone, too. The
	// error is an Unavailable one for a node that keeps no data.
	HoldData(ctx context.Context) (Data, error)
}

// Data is an open data directory.
type Data interface {
	// List counts what it holds now.
	List(ctx context.Context) (Listing, error)
	// Lose removes everything in it. It refuses while the process that had it runs, as do the two that follow.
	Lose(ctx context.Context) error
	// Save puts a copy of everything in it aside, in the place of an earlier one.
	Save(ctx context.Context) error
	// Restore replaces everything in it by the copy that was put aside, and keeps that.
	Restore(ctx context.Context) error
	// Release closes it.
	Release(ctx context.Context) error
}

// DoData is the order that looks into the data directory of a process, and empties it, saves it or restores it:
// DataArgs, answered with Listing. What is held stays open under the order's key until it is undone, so that it can be
// looked into when the process is gone.
const DoData = "data"

// What DataArgs asks for.
const (
	DataHold  = "hold"  // open the directory of a process that runs, and list it
	DataList  = "list"  // list what is held under the key
	DataEmpty = "empty" // remove everything from what is held under the key, and list it

	DataSave    = "save"    // put a copy of it aside, and list it
	DataRestore = "restore" // put the copy that was put aside in its place, and list it
)

// DataArgs says what to do with which directory.
type DataArgs struct {
	Act string `json:"act"`
	Dir string `json:"dir,omitempty"` // as the process sees it; for DataHold
}

// Listing is what a directory holds.
type Listing struct {
	Entries int    `json:"entries"` // files and directories at any depth
	Bytes   int64  `json:"bytes"`   // in files
	ID      string `json:"id"`      // equal for two looks at one directory; "" where the system does not tell
}

// String says what there was.
func (l Listing) String() string {
	if l.Entries == 0 {
		return "nothing"
	}
	return fmt.Sprintf("%d entries of %d bytes", l.Entries, l.Bytes)
}
