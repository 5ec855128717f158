// Leftovers: what the service keeps for grants that are over.
//
// The service is asked how many objects it keeps, by kind: keys, rows, nodes, leases, and sessions and connections.
// Objects that end with their client are counted before the load and at its end, while the clients live. The others
// are counted before the load and after all clients have ended and the TTL is over, when even unreleased grants are
// gone. Leftovers are the additional objects beyond an allowance. The allowance is a number for each user and each
// lock name, which the service states, and 1 % of the grants.
//
// Example: 4 users take 2 locks on Redis 1,000 times. Before the load the server has 1 key, afterwards 1,003. 4 keys
// for the users, 8 for the locks and 10 for the grants are no leftovers; 980 are. A lock that also keeps a token for
// each lock name has 3 keys afterwards, and no leftovers.
//
// It cannot see:
//   - less than one object in 100 grants, nor a few for each user and lock name
//   - what ends by itself within the TTL, nor, if the TTL is too long to wait for, any leftovers except those of living
//     clients
//   - what no kind counts: the growing value of a key of etcd or a node of ZooKeeper, other tables of attached servers
//   - what a client keeps in its own memory

package costs

import (
	"fmt"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
)

type leftovers struct {
	run    results.Run
	grants int64
	last   history.Event // the last grant
}

// Leftovers is the checker.
var Leftovers = results.CheckerKind{
	Name: "leftovers", New: newLeftovers, Grants: true,
	Doc: "The service keeps nothing for grants that ended. Judged where the service counts its contents.",
	Counts: []results.Quantity{
		{
			Name: "leftovers", Doc: "keys, nodes, connections and the like that the service still kept for ended grants ([leftovers](#leftovers))",
			Tone: results.Violation, Of: "grants after which the contents of the service were counted", Timeless: true,
		},
	},
	Witnesses: results.Aside("leftover"),
}

func newLeftovers(run results.Run) results.Checker { return &leftovers{run: run} }

// Observe takes the next event.
func (c *leftovers) Observe(e *history.Event) {
	if e.Kind == history.Acquire && e.Phase == history.Ok {
		c.grants++
		c.last = *e
	}
}

// Finish returns the finding.
func (c *leftovers) Finish() results.Finding {
	f := results.Finding{Verdict: results.Clean}
	if c.run.Contents == nil || c.run.Contents.After == nil && c.run.Contents.Loaded == nil {
		return f.NotApplicable("the contents of the service were not counted")
	}
	var n int64
	for _, l := range c.run.Contents.Left(c.run.Users, len(c.run.Locks), c.grants) {
		n += l.More - l.Explained
		f.Prove(results.Witness{
			Kind: "leftover", Lock: c.run.LockName(c.last.Lock), From: c.run.End, To: c.run.End,
			Events: []history.Event{c.last},
			Text:   fmt.Sprintf("after %d grants the service keeps %d more %s than before; its users and lock names explain %d", c.grants, l.More, l.Kind, l.Explained),
		})
	}
	return f.Judged("leftovers", n, c.grants)
}
