// Contests: how many rounds of a contest had no winner.
//
// Users that ask for one lock at the same moment are a contest: the workloads stampede and once have them. If waiters
// retry by themselves, the attempts of the same number are a round: every user that has not won yet makes one. A
// round has no winner if none of its attempts was granted: on several servers it may be a split vote. Rounds count up
// to the latest one with a reported outcome.
//
// Example: three users ask at the same moment. All fail at their first attempt, one is granted the lock with its
// second, and the others with their fourth and fifth. The first and the third round had no winner: two.
//
// If each user waits for its own time, the attempts of a round are not simultaneous, but are counted all the same.
// late_askers_share is the share that missed the moment itself. Users that are out of step get out of each other's
// way. So a figure that needs them in step is unknown if it misses a demand and more than one in twenty was late.
//
// It cannot see contests of users that do not report their attempts: nothing is judged then.

package served

import (
	"time"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
)

// lateAsker is the delay from which an acquire is out of step: some round trips, and several times the lag of a
// timer.
const lateAsker = int64(5 * time.Millisecond)

// contest has the users that asked for a lock at one moment.
type contest struct {
	users, open int
	late        int64
	rounds      uint32          // known rounds
	won         map[uint32]bool // rounds that had a winner
}

// appointment is a lock and the moment at which users are to ask for it.
type appointment struct {
	lock uint16
	at   int64
}

type contests struct {
	open                     map[appointment]*contest
	asked                    map[history.User]appointment
	askers, late             int64
	contests, rounds, winner int64
	untold                   bool
}

// Contests is the checker.
var Contests = results.CheckerKind{
	Name: "contests", New: func(results.Run) results.Checker {
		return &contests{open: map[appointment]*contest{}, asked: map[history.User]appointment{}}
	},
	Grants: true,
	Doc:    "Rounds without a winner, where users ask for one lock at the same moment and the lock retries by itself.",
	Counts: []results.Quantity{{
		Name: "rounds_without_winner", Doc: "rounds without a grant, such as split votes, where users ask for one lock at the same moment and retry ([attempts](#attempts))",
		Of: "rounds", InStep: true,
	}},
	Measures: []results.Quantity{{
		Name: "late_askers_share", Doc: "share of those users that began more than 5 ms late, 0 to 1: above 0.05 a missed expectation of rounds and attempts is unknown",
	}},
}

// Observe takes the next event.
func (c *contests) Observe(e *history.Event) {
	if e.Kind != history.Acquire {
		return
	}
	if e.Phase == history.Invoke {
		if e.Value == 0 {
			return // a closed loop
		}
		m := appointment{e.Lock, e.Value}
		x := c.open[m]
		if x == nil {
			x = &contest{won: map[uint32]bool{}}
			c.open[m] = x
		}
		c.asked[e.User] = m
		x.users++
		x.open++
		if e.Time > e.Value+lateAsker {
			x.late++
		}
		return
	}
	m, ok := c.asked[e.User]
	if !ok {
		return
	}
	delete(c.asked, e.User)
	x := c.open[m]
	x.rounds = max(x.rounds, e.Tries)
	if e.Phase == history.Ok {
		x.won[e.Tries] = true
	}
	if x.open--; x.open == 0 {
		delete(c.open, m)
		c.over(x)
	}
}

// over adds a contest that all its users have left. A single user is none.
func (c *contests) over(x *contest) {
	if x.users < 2 {
		return
	}
	c.contests++
	c.askers += int64(x.users)
	c.late += x.late
	c.rounds += int64(x.rounds)
	c.winner += int64(len(x.won))
	c.untold = c.untold || x.won[0]
}

// Finish returns the finding.
func (c *contests) Finish() results.Finding {
	f := results.Finding{Verdict: results.Clean}
	switch {
	case c.contests == 0:
		return f.NotApplicable("no users asked for one lock at the same moment")
	case c.untold:
		return f.NotApplicable("not every grant reports its number of attempts")
	}
	f.Counts = map[string]*int64{"rounds_without_winner": new(c.rounds - c.winner)}
	f.Chances = map[string]results.Chances{"rounds_without_winner": {N: c.rounds}}
	f.Measures = map[string]*float64{"late_askers_share": new(float64(c.late) / float64(c.askers))}
	return f
}
