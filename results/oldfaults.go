package results

import (
	"strings"

	"github.com/lockquake/lockquake/history"
)

// oldTraits has the traits of faults for records of older programs, which lack them. New faults do not belong here,
// because their records have traits.
var oldTraits = map[string]history.Traits{
	"noop":       {Idle: true},
	"pause":      {Halts: true, Began: "paused (SIGSTOP)", Ended: "runs again"},
	"freeze":     {Halts: true, Began: "frozen", Ended: "runs again"},
	"kill":       {Kills: true, Began: "killed (SIGKILL)", Ended: "up again"},
	"stop":       {Kills: true, Returns: true, Began: "asked to stop", Ended: "up again"},
	"restart":    {Kills: true, Returns: true, Began: "killed (SIGKILL)", Ended: "serves again"},
	"power-loss": {Kills: true, Returns: true, Began: "power lost", Ended: "serves again"},
	"partition":  {Began: "cut off from {peers}", Ended: "connected again"},
	"hold-back":  {AtPeers: true, Began: "packets to {peers} are held back", Ended: "packets are released"},
	"clock-jump": {Began: "clock moved by {by}", Ended: "clock set right"},
	"delay":      {Began: "packets delayed by {by}", Ended: "delayed no more"},
	"slow-disk":  {Began: "fsyncs delayed by {by}", Ended: "fsyncs as before"},
	"failover":   {Began: "asked to hand over the lead"},
	"loss":       {}, "duplicate": {}, "reorder": {}, "corrupt": {}, "rate": {}, "clock-drift": {},
}

// giveTraits adds traits to an old record.
func giveTraits(f *history.Fault) {
	if f.Traits != nil {
		return
	}
	t := oldTraits[f.Name]
	t.Cuts = f.Name == "partition" && !strings.Contains(f.Params, "port: ")
	switch {
	case f.Name == "restart" && strings.Contains(f.Params, "how: stop"):
		t.Began = "asked to stop"
	case f.Name == "partition" && strings.Contains(f.Params, "direction: out"):
		t.Began, t.Ended = "nothing gets out to {peers}", "gets out again"
	case f.Name == "partition" && strings.Contains(f.Params, "direction: in"):
		t.Began, t.Ended = "nothing gets in from {peers}", "gets in again"
	}
	f.Traits = &t
}
