package campaign

import (
	"cmp"
	"path/filepath"
	"slices"
	"time"

	"github.com/lockquake/lockquake/results"
)

// Cost is an estimate of how long a provider takes.
type Cost struct {
	Start  time.Duration // from nothing until the service is ready
	Beside time.Duration // the overhead of a run on servers that are up
}

// usual lists the costs by provider, used before anything was measured.
var usual = map[string]Cost{
	"inproc": {0, 300 * time.Millisecond},
	"local":  {5 * time.Second, time.Second},
	"docker": {4 * time.Second, 2500 * time.Millisecond},
	"swarm":  {15 * time.Second, 4 * time.Second},
}

// enough is how many earlier runs the median is taken over.
const enough = 9

// CostOf returns the median cost of a provider's runs in a folder of runs: the latest of each scenario. Without any
// it returns the default.
func CostOf(provider, runs string) Cost {
	var starts, besides []time.Duration
	latest, _ := filepath.Glob(filepath.Join(runs, "*", "latest")) // the patterns are well formed
	within, _ := filepath.Glob(filepath.Join(runs, "*", "*", "latest"))
	for _, dir := range append(latest, within...) {
		if len(starts) >= enough && len(besides) >= enough {
			break
		}
		env, err := results.ReadEnv(dir)
		if err != nil || env.Provider != provider || env.Interrupted {
			continue
		}
		took := func(names ...string) (sum time.Duration) {
			for _, name := range names {
				sum += time.Duration(env.Timings[name]) * time.Millisecond
			}
			return sum
		}
		if env.Kept {
			besides = append(besides, took(results.TimeReset, results.TimeHello, results.TimeConnect, results.TimeHeal,
				results.TimeSettle, results.TimeDown))
		} else if serve := took(results.TimeOpen, results.TimeStart, results.TimeServe); serve > 0 {
			starts = append(starts, serve)
		}
	}
	c := usual[provider]
	return Cost{Start: median(starts, c.Start), Beside: median(besides, c.Beside)}
}

// median returns the median of the first few values, or none if the list is empty.
func median(list []time.Duration, none time.Duration) time.Duration {
	if len(list) == 0 {
		return none
	}
	list = slices.Sorted(slices.Values(list[:min(len(list), enough)]))
	return cmp.Or(list[len(list)/2], none)
}
