// Package choose puts locks side by side for whoever has to take one: one load on each, healthy and through the loss of
// a server, with what its stories say breaks it. It leaves choose.json, of which the table can be made again.
package choose

import (
	"os"
	"path/filepath"
	"time"

	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/results/capacity"
)

// Schema names the version of choose.json.
const Schema = "lockquake/choose/1"

// The names of the result and of its page in their directory.
const (
	File       = "choose.json"
	FileReport = "choose.html"
)

// The load that all locks get.
const (
	Users = 32 // of all clients
	Few   = 1  // locks
	Many  = 64 // locks
)

// loads are the numbers of locks.
var loads = []int{Few, Many}

// Result is choose.json.
type Result struct {
	Schema string `json:"schema"`
	results.Origin
	Seed        uint64 `json:"seed"`
	Provider    string `json:"provider"`
	Users       int    `json:"users"`
	Measured    int64  `json:"measured_ns"` // of each run of a load, behind the warm-up
	Repeat      int    `json:"repeat"`      // runs of each load
	Rows        []Row  `json:"rows"`
	Interrupted bool   `json:"interrupted,omitempty"`
}

// Row is a lock.
type Row struct {
	Backend string `json:"backend"`
	Lock    string `json:"lock"`
	Doc     string `json:"doc"`
	Servers int    `json:"servers"`
	// Token is who makes its fencing tokens: service, home-made, or none.
	Token string `json:"token"`
	// Waits says that a user waits in the service; else it asks again and again.
	Waits  bool     `json:"waits"`
	Loads  []Load   `json:"loads"`
	Loss   *Loss    `json:"loss,omitempty"` // nil: not run
	Breaks []Breaks `json:"breaks"`         // the worst first
	NotRun string   `json:"not_run,omitempty"`
}

// Load is the users on so many locks, on a healthy service.
type Load struct {
	Locks   int               `json:"locks"`
	Samples []capacity.Sample `json:"samples"`
}

// Loss is a run in which a server is killed and comes back.
type Loss struct {
	Run    string `json:"run"`    // directory, as seen from that of the result
	Target string `json:"target"` // the server
	Bit    bool   `json:"bit"`
	// Gap is the longest time for which a lock could not be taken although somebody asked, in ms; nil: not known.
	Gap *float64 `json:"gap_ms"`
	// Double is how many pairs of users were both entitled; nil: not judged.
	Double  *int64          `json:"double_grants"`
	Verdict results.Verdict `json:"verdict"`
	Reasons []string        `json:"reasons,omitempty"`
}

// Breaks is a story that demands a violation, and finds it.
type Breaks struct {
	Story string `json:"story"`
	Lock  string `json:"lock,omitempty"` // of the story, where it is another one of the same service
	// Counts are the violations, such as double_grants.
	Counts []string `json:"counts"`
}

// Write writes it into its directory, which it makes.
func (r Result) Write(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return results.WriteJSON(filepath.Join(dir, File), r)
}

// What one run does beside its load.
const (
	warm = time.Second
	// lossAt is when the server is killed, behind the warm-up, and lossFor for how long it is gone.
	lossAt, lossFor = 2 * time.Second, 3 * time.Second
	// lossRun is how long such a run is: time for the election, and for what dead users held to end.
	lossRun = 12 * time.Second
	// ttl is short, for it bounds how long a lock is gone whose release was lost with a server.
	ttl = 3 * time.Second
)
