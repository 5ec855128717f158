package disk

// The orders about disks whose power can be cut: ext4 in a loop file.
//
// DoDisk makes such a disk under the order's key: Args, answered with Made. It concerns no process. DoMark, DoCut and
// DoLook name an existing disk by its key, in Use.
const (
	DoDisk = "disk"
	DoMark = "disk-mark" // while it is not mounted: write a synced file to it, and remove the unsynced one
	// write a file without a sync, drop unsynced data from now on, and kill the process; answered with Cut
	DoCut  = "disk-cut"
	DoLook = "disk-look" // once it is not mounted any more: check which files survived; answered with Seen
)

// Args says where a disk is made.
type Args struct {
	Dir string `json:"dir"` // where the agent may make a file, and mount the disk to look into it
	Dev string `json:"dev"` // where the agent sees the machine's /dev
}

// Made is a disk that was made.
type Made struct {
	Device string `json:"device"` // as the machine names it: /dev/loop3
}

// Use names a disk.
type Use struct {
	Disk string `json:"disk"`          // the key of the order that made it
	Dir  string `json:"dir,omitempty"` // where the process has it mounted, for DoCut
}

// Cut answers a DoCut.
type Cut struct {
	Shut   int64 `json:"shut"`   // ns of CLOCK_MONOTONIC when the file system was shut down
	Killed int64 `json:"killed"` // the same, of the SIGKILL
}

// Seen is what a new mount found on the disk.
type Seen struct {
	Synced   bool    `json:"synced"`   // the file that was synced is there, whole
	Unsynced bool    `json:"unsynced"` // the file that was not synced is there
	Listing  Listing `json:"listing"`
}
