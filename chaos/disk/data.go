package disk

import (
	"context"
	"fmt"

	"github.com/lockquake/lockquake/chaos"
)

// CanData is the capability of a DataHolder.
const CanData chaos.Capability = "data"

// DataHolder is a node whose data directory can be inspected from outside.
type DataHolder interface {
	// HoldData opens the directory of the running process. The result stays usable after the process has ended. For a
	// node that keeps no data it returns an Unavailable error.
	HoldData(ctx context.Context) (Data, error)
}

// Data is an open data directory.
type Data interface {
	// List counts its current contents.
	List(ctx context.Context) (Listing, error)
	// Lose removes everything in it. Lose, Save and Restore return an error while the process that used it runs.
	Lose(ctx context.Context) error
	// Save copies everything in it, replacing an earlier copy.
	Save(ctx context.Context) error
	// Restore replaces everything in it with the saved copy, and keeps the copy.
	Restore(ctx context.Context) error
	// Release closes it.
	Release(ctx context.Context) error
}

// DoData is the order that inspects, empties, saves or restores the data directory of a process: DataArgs, answered
// with Listing. The directory stays open under the order's key until the undo, so that it can be inspected after the
// process has ended.
const DoData = "data"

// The operations of DataArgs.
const (
	DataHold  = "hold"  // open the directory of a running process, and list it
	DataList  = "list"  // list the directory held under the key
	DataEmpty = "empty" // remove everything from the directory held under the key, and list it

	DataSave    = "save"    // copy it, and list it
	DataRestore = "restore" // replace it with the copy, and list it
)

// DataArgs names an operation and a directory.
type DataArgs struct {
	Act string `json:"act"`
	Dir string `json:"dir,omitempty"` // as the process sees it; for DataHold
}

// Listing summarizes the contents of a directory.
type Listing struct {
	Entries int    `json:"entries"` // files and directories at any depth
	Bytes   int64  `json:"bytes"`   // in files
	ID      string `json:"id"`      // identifies the directory; "" if the system has no id
}

// String describes the contents.
func (l Listing) String() string {
	if l.Entries == 0 {
		return "nothing"
	}
	return fmt.Sprintf("%d entries of %d bytes", l.Entries, l.Bytes)
}
