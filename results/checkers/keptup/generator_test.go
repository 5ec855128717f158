package keptup

import (
	"slices"
	"testing"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
)

// TestGeneratorWarnings: a lag of more than 10 ms, with the client that lagged most, and more than 0.4 of
// the machine's processor time.
func TestGeneratorWarnings(t *testing.T) {
	for _, c := range []struct {
		name    string
		lag     []int64 // by client, in ns
		cpu     int64   // of a second
		cores   int
		end     int64
		share   float64 // -1 if it is not reported
		warning string
	}{
		{"just as much as is allowed", []int64{10e6}, 4e8, 1, 1e9, 0.4, ""},
		{"late", []int64{11e6}, 4e8, 1, 1e9, 0.4, "the schedule of the open loop lagged: client-1 began arrivals up to 11.000 ms late"},
		{"both late", []int64{11e6, 11e6}, 4e8, 2, 1e9, 0.2, "the schedule of the open loop lagged: client-1 began arrivals up to 11.000 ms late"},
		{"one later", []int64{11e6, 12e6, 0}, 4e8, 2, 1e9, 0.2, "the schedule of the open loop lagged: client-2 began arrivals up to 12.000 ms late"},
		{"busy", []int64{0}, 5e8, 1, 1e9, 0.5, "the clients used 50 % of the machine's CPU: the load generator, not the lock, may be the limit"},
		{"nobody knows how many cores there are", []int64{0}, 5e8, 0, 1e9, -1, ""},
		{"a run without an end", []int64{0}, 5e8, 1, 0, -1, ""},
	} {
		run := results.Run{End: c.end, Cores: c.cores}
		for i, lag := range c.lag {
			run.Clients = append(run.Clients, results.ClientStats{Name: history.ClientName(i), Lag: lag})
		}
		run.Clients[0].CPU = c.cpu
		f := newGenerator(run).Finish()
		share := -1.0
		if m := f.Measures["client_cpu_share"]; m != nil {
			share = *m
		}
		var want []string
		if c.warning != "" {
			want = []string{c.warning}
		}
		if share != c.share || !slices.Equal(f.Warnings, want) {
			t.Errorf("%s: share %g, warnings %q", c.name, share, f.Warnings)
		}
	}
}
