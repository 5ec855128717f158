// Unfairness: a user that asks for a lock gets it, and about as often as the others.
//
// starved_users is the number of users that asked for longer than the lock's recovery bound (or half of the run, if
// that is shorter) and got nothing, while others did. jain_index is Jain's index of the grants of all users that
// asked: 1 when all got the same, 1/n when one got all. longest_wait_ms is the longest time from an acquire's invoke
// (in an open loop: from its intended start) to its outcome, whatever that was. longest_vain_wait_ms is the same for
// acquires without a grant.
//
// If the run had a warm-up, only later grants and waits count; starved users are judged over everything.
//
// It cannot see which user overtook which. It does not distinguish users that wanted less from users that got less.
// In a directed run users only ask when told to, so there it judges nothing except the longest wait.

package served

import (
	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/results/checkers/users"
)

type unfairness struct {
	run     results.Run
	users   users.Table[share]
	death   map[int]int64
	longest results.Interval // the longest wait
	vain    results.Interval // the longest wait that ended without a grant
	failed  bool             // there was one
	waits   int64
	last    int64
}

type share struct {
	op     uint32
	open   bool
	first  int64 // when it asked for the first time
	since  int64
	want   int64 // intended start
	asks   int64
	asked  int64 // ns in all
	grants int64
	shared int64 // grants in the index
}

// Unfairness is the checker.
var Unfairness = results.CheckerKind{
	Name: "unfairness", New: newUnfairness, Grants: true,
	Doc: "Each user who asks for a lock gets it, and about as often as the others.",
	Counts: []results.Quantity{
		{
			Name: "starved_users", Doc: "users who asked all the time without a grant", Of: "users who asked for a lock",
			NeedsEnds: true,
		},
	},
	Measures: []results.Quantity{
		{Name: "jain_index", Doc: "fairness of the grants among the users who asked: 1 means equal shares, 1/n all grants for one of n", MoreIsBetter: true},
		{Name: "longest_wait_ms", Doc: "the longest time from asking for a lock to the outcome, granted or not"},
		{Name: "longest_vain_wait_ms", Doc: "the longest time from asking for a lock to an outcome without a grant"},
	},
}

func newUnfairness(run results.Run) results.Checker {
	return &unfairness{run: run, death: map[int]int64{}}
}

// Observe takes the next event.
func (c *unfairness) Observe(e *history.Event) {
	c.last = e.Time
	switch {
	case e.Kind == history.Dead:
		if _, ok := c.death[e.User.Client()]; !ok {
			c.death[e.User.Client()] = e.Time
		}
	case e.Kind != history.Acquire:
	case e.Phase == history.Invoke:
		u := c.users.At(e.User)
		u.op, u.open, u.since, u.want = e.Op, true, e.Time, e.Time
		if u.asks == 0 {
			u.first = e.Time
		}
		if e.Value != 0 {
			u.want = min(e.Value, e.Time)
		}
		u.asks++
	default:
		u := c.users.At(e.User)
		if u.open && u.op == e.Op {
			if e.Phase != history.Ok && c.run.Counts(u.want) {
				c.vain, c.failed = longer(c.vain, results.Interval{From: u.want, To: e.Time}), true
			}
			c.end(u, e.Time)
		}
		if e.Phase == history.Ok {
			u.grants++
			if c.run.Counts(e.Time) {
				u.shared++
			}
		}
	}
}

func (c *unfairness) end(u *share, t int64) {
	u.open = false
	u.asked += max(0, t-u.since)
	if c.run.Counts(u.want) {
		c.longest = longer(c.longest, results.Interval{From: u.want, To: t})
		c.waits++
	}
}

// longer returns the longer one of two times, the first of equal ones.
func longer(a, b results.Interval) results.Interval {
	if b.To-b.From > a.To-a.From {
		return b
	}
	return a
}

// Finish returns the finding.
func (c *unfairness) Finish() results.Finding {
	for _, i := range users.DeadClients(c.run) {
		if _, ok := c.death[i]; !ok {
			c.death[i] = 0 // unknown time: its open requests do not count
		}
	}
	patience := c.run.RecoveryBound()
	if half := (c.run.End - c.run.Start) / 2; half > 0 {
		patience = min(patience, half)
	}
	var n, got, sum, squares, starved float64
	l := results.NewLedger()
	for user, u := range c.users.All() {
		died, dead := c.death[user.Client()]
		if u.open && !dead {
			c.end(u, c.last)
		} else if u.open && died > u.since {
			c.end(u, died)
		}
		if u.asks == 0 {
			continue
		}
		n++
		got += float64(u.grants)
		sum += float64(u.shared)
		squares += float64(u.shared) * float64(u.shared)
		if u.grants == 0 && u.asked > patience {
			starved++
			still := c.run.Still.Worst(u.first, c.last)
			l.Add(c.run, 0, 1, still, still.Total > u.asked-patience)
		}
	}
	f := results.Finding{Verdict: results.Clean, Counts: map[string]*int64{"starved_users": nil}}
	f.Measures = map[string]*float64{"jain_index": nil, "longest_wait_ms": nil, "longest_vain_wait_ms": nil}
	if c.waits > 0 {
		f.Measures["longest_wait_ms"] = new(results.Milli(c.longest.To - c.longest.From))
	}
	if c.failed {
		f.Measures["longest_vain_wait_ms"] = new(results.Milli(c.vain.To - c.vain.From))
	}
	queued := func(w results.Interval) []results.Span {
		return []results.Span{{Interval: w, Length: w.To - w.From, Queued: true}}
	}
	f.Spans = map[string][]results.Span{"longest_wait_ms": queued(c.longest), "longest_vain_wait_ms": queued(c.vain)}
	switch {
	case c.run.Directed:
		f.Verdict, f.Skipped = results.Unknown, "the run is directed: its steps decide who asks"
	case got == 0:
		f.Verdict, f.Skipped = results.Unknown, "nobody got a lock"
	default:
		f.Verdict = results.VerdictOf(int64(starved))
		f.Counts["starved_users"] = new(int64(starved))
		f.Chances = map[string]results.Chances{"starved_users": {N: int64(n)}}
		l.Into(&f, "starved_users")
		if sum > 0 {
			f.Measures["jain_index"] = new(sum * sum / (n * squares))
		}
	}
	return f
}
