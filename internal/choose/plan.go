package choose

import (
	"fmt"
	"strconv"
	"time"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/internal/campaign"
	"github.com/lockquake/lockquake/internal/engine"
	"github.com/lockquake/lockquake/scenarios"
)

// Candidate is a lock with the runs to make on it.
type Candidate struct {
	Row
	loads   []scenarios.Scenario // one for each number of locks
	loss    scenarios.Scenario
	options engine.Options // of all runs
}

const healthy = `name: choose
claim: How much load the lock takes.
backend: {use: %s, lock: %s, ttl: 10s}
workload: {use: acquire-release, clients: 2, users: %d, locks: %d}
expect: {judged: ">=1"}
`

// broken gives users think time, so that the processor is not the bottleneck. Violations are counted, but none is
// demanded.
const broken = `name: choose-loss
claim: A server is killed, and comes back.
backend: {use: %s, lock: %s, ttl: %v}
workload: {use: acquire-release, clients: 4, users: %d, locks: %d, hold: 1ms, think: 20ms}
chaos:
  - {use: kill, on: %s, at: %v, for: %v}
expect: {double_grants: ">=0", foreign_releases: ">=0", stuck_locks: ">=0", wedges: ">=0", judged: ">=1"%s}
`

// targets lists the selectors of the server to kill; the first that the service supports is taken. They are the
// primary of the lock's shard, the leader, and any of several equal servers.
var targets = []string{"leader(lock-0)", "leader", "one"}

// Options returns the options common to all its runs, without their scenarios.
func (c Candidate) Options() engine.Options { return c.options }

// NewCandidate builds the runs of a lock, as far as they can be made with the options. It replaces the options'
// scenario.
func NewCandidate(row Row, options func(scenarios.Scenario) (engine.Options, error)) (Candidate, error) {
	c := Candidate{Row: row}
	for _, locks := range loads {
		c.Loads = append(c.Loads, Load{Locks: locks})
	}
	for _, locks := range loads {
		s, err := scenarios.Parse(fmt.Appendf(nil, healthy, strconv.Quote(row.Backend), strconv.Quote(row.Lock),
			Users/2, locks), "choose.yaml")
		if err != nil {
			return c, err
		}
		o, err := options(s)
		if err != nil {
			return c, err
		}
		plan, err := engine.Check(o)
		if err != nil {
			return c, err
		}
		c.Servers, c.options = plan.Facts().Servers, o
		c.loads = append(c.loads, s)
	}
	tokens := "" // a counter that is lost with its server restarts lower
	if row.Token == string(backends.TokenHomeMade) {
		tokens = `, token_regressions: ">=0"`
	}
	var err, first error
	for _, who := range targets {
		text := fmt.Appendf(nil, broken, strconv.Quote(row.Backend), strconv.Quote(row.Lock), ttl, Users/4, Many, who,
			warm+lossAt, lossFor, tokens)
		if c.loss, err = scenarios.Parse(text, "choose-loss.yaml"); err != nil {
			return c, err
		}
		var o engine.Options
		if o, err = options(c.loss); err != nil {
			return c, err
		}
		if _, err = engine.Check(o); err == nil {
			return c, nil
		}
		if first == nil {
			first = err
		}
	}
	return c, first
}

// Takes estimates how long all runs take.
func Takes(candidates []Candidate, repeat int, measured time.Duration, cost campaign.Cost) (all time.Duration) {
	started := map[string]bool{}
	for _, c := range candidates {
		if c.NotRun != "" {
			continue
		}
		if !started[c.Backend] {
			all += cost.Start
		}
		started[c.Backend] = true
		all += time.Duration(repeat*len(loads))*(warm+measured+cost.Beside) + warm + lossRun + cost.Beside
	}
	return all
}
