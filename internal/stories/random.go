package stories

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Draw says what to draw from.
type Draw struct {
	Faults []string          // none: pause, partition, delay
	On     []string          // targets; none: holder, clients
	For    time.Duration     // 0: ten TTLs
	Expect map[string]string // added to the expectations of every such story, or replacing them
}

// Random returns a story of contending users under faults drawn from the seed. Holders may outlive their grants, and
// their late writes are not rejected.
func Random(seed uint64, d Draw) Story {
	if len(d.Faults) == 0 {
		d.Faults = []string{"pause", "partition", "{use: delay, to: all, by: (0.1ttl)}"}
	}
	if len(d.On) == 0 {
		d.On = []string{"holder", "client-1"}
	}
	length, takes := "(10ttl)", "10ttl"
	if d.For > 0 {
		length, takes = d.For.String(), d.For.String()
	}
	expect := map[string]string{"double_grants": "0", "stuck_locks": "0", "judged": ">=10"}
	maps.Copy(expect, d.Expect)
	var entries []string
	for _, free := range []string{"lost_updates", "stale_writes", "releases_of_nothing", "overlapping_holds"} {
		if expect[free] == "" {
			entries = append(entries, free+`: ">=0"`)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(expect)) {
		entries = append(entries, fmt.Sprintf("%s: %q", name, expect[name]))
	}
	t := read("random.yaml", `claim: Users compete for the lock during random faults.
turn: 1
needs: [processes]
takes: `+takes+`
workload: {use: counter, clients: (clients), users: 2, hold: 30ms, resource: {use: register, guard: none}}
chaos:
  random: [`+strings.Join(d.Faults, ", ")+`]
  on: [`+strings.Join(d.On, ", ")+`]
  for: (0.5ttl)..(2ttl)
  mean_gap: (ttl)
  spare: majority
run: {for: `+length+`, seed: `+fmt.Sprint(seed)+`}
expect: {`+strings.Join(entries, ", ")+`}
`, nil)
	t.Name, t.Family = "random", ""
	return t
}
