// Cost: how often waiters were woken for each handoff, how many requests the servers got for each handoff, each grant
// and each second of waiting, how many connections a grant took, and how much of the clients' processor time.
//
// The clients count the notifications of their watches; the servers count their requests and connections, each in its
// own way. All are read before the start and before the stop of the workload, and the servers also just before one of
// them is killed. The differences are divided by the handoffs (a release followed by a grant of the same lock), by
// the grants between, and by the total time that users spent in acquires meanwhile. For the last one only the server
// with the most requests counts, so that the number of servers does not matter.
//
// A restarted process counts from zero. So a period between two readings counts only if every server had one process
// throughout. Example: a Redis took 9,000 requests for 1,000 grants, was killed, and has taken 7,000 since. The
// requests in between are unknown; the figure is that of the period up to the kill, 9 a grant.
//
// Example: one user holds the lock for 2 s, and nine wait. They ask again every 10 ms, so the server takes 1800
// requests in 18 s of waiting: 100 for each second. A library that asks again without a pause has thousands.
//
// The cost of an acquire of a free lock, and of a release, is counted in runs of steps with a single user and no
// faults, as in the story answers: the counters are read before and after each. Of several the lowest counts. Other
// requests meanwhile only add to it, such as pings, or a script that the server does not know yet.
//
// It judges nothing. Pings of sessions count as requests, and so do lockquake's own requests while faults stand. It
// cannot see:
//   - the requests of servers that do not count them
//   - the cost of an acquire or a release while others wait or something is broken: their requests cannot be
//     distinguished from its own
//   - the cost of a kill: the period from it to the next reading is left out
//   - a restart in run directories of versions that did not record it, if the server has counted beyond its first
//     reading
//   - users that poll, or waiters that the server itself wakes: no watch notifies them
//   - the cost of waiting alone, if users acquire and release all the time: the requests of their grants are among
//     those of the waiting
//
// There is no figure if in every period a server or client is missing from a reading, or restarted its counters.

// Package costs has the checkers for the costs of grants: of the servers, the resource and the clients, and
// leftovers.
package costs

import (
	"maps"
	"slices"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/results/checkers/users"
)

type cost struct {
	run      results.Run
	released map[uint16]bool    // by lock: a release without a following grant
	waits    users.Table[int64] // since when a user asks for a lock; 0: it does not
	periods  []period           // each between two readings
}

// period is the time between two readings.
type period struct {
	before, after    *results.Reading
	waited           int64 // ns of waiting by users
	handoffs, grants int64
}

// Cost is the checker.
var Cost = results.CheckerKind{
	Name: "cost", New: newCost, Grants: true,
	Doc: "The cost of a handoff, of a grant and of waiting: waiters woken, requests to the servers, processor time of the clients.",
	Measures: []results.Quantity{
		{Name: "wakeups_per_handoff", Doc: "notifications of watches for each handoff ([cost](#cost))", Timeless: true},
		{Name: "requests_per_handoff", Doc: "requests to the servers for each handoff ([cost](#cost))", Timeless: true},
		{
			Name: "requests_per_grant", Doc: "requests to the servers for each grant ([cost](#cost))", Timeless: true,
			InStep: true,
		},
		{Name: "requests_per_acquire", Doc: "requests to the servers for an uncontended acquire, minimum of the run ([cost](#cost))", Timeless: true},
		{Name: "requests_per_release", Doc: "requests to the servers for a release without waiters, minimum of the run ([cost](#cost))", Timeless: true},
		{Name: "requests_per_wait_s", Doc: "requests to the busiest server, for each second that a user waited for a lock ([cost](#cost))", Timeless: true},
		{
			Name: "connections_per_grant", Doc: "connections that the servers accepted, for each grant ([cost](#cost))",
			Timeless: true,
		},
		{
			Name: "client_cpu_ms_per_grant", Doc: "processor time of the clients for each grant ([cost](#cost))",
			Timeless: true,
		},
		{
			Name:     "client_cpu_ms_per_wait_s",
			Doc:      "processor time of the clients for each second that a user waited for a lock ([cost](#cost))",
			Timeless: true,
		},
	},
}

func newCost(run results.Run) results.Checker {
	c := &cost{run: run, released: map[uint16]bool{}}
	for i := 1; i < len(run.Readings); i++ {
		c.periods = append(c.periods, period{before: &run.Readings[i-1], after: &run.Readings[i]})
	}
	return c
}

// Observe takes the next event.
func (c *cost) Observe(e *history.Event) {
	if len(c.periods) == 0 || e.Time > c.periods[len(c.periods)-1].after.Time {
		return
	}
	if e.Kind == history.Acquire {
		c.wait(e)
	}
	if e.Time < c.periods[0].before.Time {
		return
	}
	switch {
	case e.Kind == history.Release && e.Phase == history.Invoke:
		c.released[e.Lock] = true
	case e.Kind == history.Acquire && e.Phase == history.Ok:
		s := &c.periods[slices.IndexFunc(c.periods, func(s period) bool { return e.Time <= s.after.Time })]
		s.grants++
		if c.released[e.Lock] {
			c.released[e.Lock] = false
			s.handoffs++
		}
	}
}

// wait adds up the times of acquires.
func (c *cost) wait(e *history.Event) {
	since := c.waits.At(e.User)
	if e.Phase == history.Invoke {
		*since = e.Time
		return
	}
	c.waited(*since, e.Time)
	*since = 0
}

// waited adds a waiting time to the periods that contain it.
func (c *cost) waited(since, until int64) {
	if since == 0 {
		return
	}
	for i := range c.periods {
		s := &c.periods[i]
		s.waited += max(0, min(until, s.after.Time)-max(since, s.before.Time))
	}
}

// Finish returns the finding.
func (c *cost) Finish() results.Finding {
	f := results.Finding{Verdict: results.Clean, Measures: map[string]*float64{}}
	for name, each := range map[string][]int64{
		"requests_per_acquire": c.run.Acquires,
		"requests_per_release": c.run.Releases,
	} {
		if len(each) > 0 {
			f.Measures[name] = new(float64(slices.Min(each)))
		}
	}
	if len(c.periods) == 0 {
		return f
	}
	before, after := c.periods[0].before, c.periods[len(c.periods)-1].after
	for _, since := range c.waits.All() {
		c.waited(*since, after.Time)
	}
	var all period
	for _, s := range c.periods {
		all.add(s)
	}
	if n, ok := results.Between(before.Notifications, after.Notifications); ok {
		f.Measures["wakeups_per_handoff"] = per(n, all.handoffs)
	}
	if byServer, s := c.counted(func(r *results.Reading) map[string]int64 { return r.Requests }); byServer != nil {
		n := sum(byServer)
		f.Measures["requests_per_handoff"], f.Measures["requests_per_grant"] = per(n, s.handoffs), per(n, s.grants)
		f.Measures["requests_per_wait_s"] = perSecond(float64(slices.Max(slices.Collect(maps.Values(byServer)))),
			s.waited)
	}
	if byServer, s := c.counted(func(r *results.Reading) map[string]int64 { return r.Connections }); byServer != nil {
		f.Measures["connections_per_grant"] = per(sum(byServer), s.grants)
	}
	if ns, ok := results.Between(ofClients(before.CPU), ofClients(after.CPU)); ok {
		f.Measures["client_cpu_ms_per_wait_s"] = perSecond(results.Milli(ns), all.waited)
		if all.grants > 0 {
			f.Measures["client_cpu_ms_per_grant"] = new(results.Milli(ns) / float64(all.grants))
		}
	}
	return f
}

// counted adds up, by server, the counts of the periods in which every server had one process, and the events in
// these. It is nil without such a period.
func (c *cost) counted(of func(*results.Reading) map[string]int64) (byServer map[string]int64, whole period) {
	for _, s := range c.periods {
		before, after := of(s.before), of(s.after)
		if _, ok := results.Between(before, after); !ok || !maps.Equal(s.before.Starts, s.after.Starts) {
			continue
		}
		if byServer == nil {
			byServer = map[string]int64{}
		}
		for name, n := range after {
			byServer[name] += n - before[name]
		}
		whole.add(s)
	}
	return byServer, whole
}

func (s *period) add(more period) {
	s.waited, s.handoffs, s.grants = s.waited+more.waited, s.handoffs+more.handoffs, s.grants+more.grants
}

func sum(by map[string]int64) (n int64) {
	for _, v := range by {
		n += v
	}
	return n
}

// ofClients returns the clients' part.
func ofClients(all map[string]int64) map[string]int64 {
	out := map[string]int64{}
	for name, n := range all {
		if _, ok := history.ClientOf(name); ok {
			out[name] = n
		}
	}
	return out
}

// perSecond divides by a time in ns; nil if it is 0.
func perSecond(n float64, ns int64) *float64 {
	if ns == 0 {
		return nil
	}
	return new(n / (float64(ns) / 1e9))
}

// per divides by a count; nil if it is 0.
func per(n, by int64) *float64 {
	if by == 0 {
		return nil
	}
	return new(float64(n) / float64(by))
}
