// Package choose compares locks for a reader who must pick one. It puts one load on each, on a healthy service and
// during the loss of a server, and lists the stories that break it. It writes choose.json, from which the table can
// be made again.
package choose

import (
	"os"
	"path/filepath"
	"time"

	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/results/capacity"
)

// Schema is the version of choose.json's format.
const Schema = "lockquake/choose/1"

// The file names of the result and of its page.
const (
	File       = "choose.json"
	FileReport = "choose.html"
)

// The load that every lock gets.
const (
	Users = 32 // in all clients together
	Few   = 1  // locks
	Many  = 64 // locks
)

// loads are the numbers of locks.
var loads = []int{Few, Many}

// Result is the content of choose.json.
type Result struct {
	Schema string `json:"schema"`
	results.Origin
	Seed        uint64 `json:"seed"`
	Provider    string `json:"provider"`
	Users       int    `json:"users"`
	Measured    int64  `json:"measured_ns"` // of each run of a load, after the warm-up
	Repeat      int    `json:"repeat"`      // runs of each load
	Rows        []Row  `json:"rows"`
	Interrupted bool   `json:"interrupted,omitempty"`
}

// Row is the result of one lock.
type Row struct {
	Backend string `json:"backend"`
	Lock    string `json:"lock"`
	Doc     string `json:"doc"`
	Servers int    `json:"servers"`
	// Token is the source of its fencing tokens: service, home-made, or none.
	Token string `json:"token"`
	// Waits says that users wait in the service; otherwise they poll.
	Waits  bool     `json:"waits"`
	Loads  []Load   `json:"loads"`
	Loss   *Loss    `json:"loss,omitempty"` // nil: not run
	Breaks []Breaks `json:"breaks"`         // the worst first
	NotRun string   `json:"not_run,omitempty"`
}

// Load is the result of the users on that many locks, on a healthy service.
type Load struct {
	Locks   int               `json:"locks"`
	Samples []capacity.Sample `json:"samples"`
}

// Loss is a run in which a server is killed and comes back.
type Loss struct {
	Run    string `json:"run"`    // directory, relative to that of the result
	Target string `json:"target"` // the server
	Bit    bool   `json:"bit"`
	// Gap is the longest time for which a requested lock could not be taken, in ms; nil: not known.
	Gap *float64 `json:"gap_ms"`
	// Double is the number of pairs of users that were both entitled; nil: not judged.
	Double  *int64          `json:"double_grants"`
	Verdict results.Verdict `json:"verdict"`
	Reasons []string        `json:"reasons,omitempty"`
}

// Breaks is a story that demands a violation and finds it.
type Breaks struct {
	Story string `json:"story"`
	Lock  string `json:"lock,omitempty"` // of the story, if it is another lock of the same service
	// Counts are the violations, such as double_grants.
	Counts []string `json:"counts"`
}

// Write writes the result into its directory, which it creates.
func (r Result) Write(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return results.WriteJSON(filepath.Join(dir, File), r)
}

// The settings of a run apart from its load.
const (
	warm = time.Second
	// lossAt is when the server is killed, counted from the end of the warm-up. lossFor is how long it is down.
	lossAt, lossFor = 2 * time.Second, 3 * time.Second
	// lossRun is the length of such a run: long enough for the election and for the holds of dead users to expire.
	lossRun = 12 * time.Second
	// ttl is short because it bounds how long a lock stays taken after its release was lost with a server.
	ttl = 3 * time.Second
)
