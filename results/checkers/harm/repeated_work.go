// Repeated work: a piece of work that should be done once is done once.
//
// Each write says that the piece of work that its value names is done. Every acknowledged write beyond the first of
// one value is repeated work: a second mail, another computation of a missing cache value. It also measures how long
// users waited for wanted work. The wait starts when all users want it, and ends when the user knows that it is done,
// because it read so or did it.
//
// It cannot see work that was done and never acknowledged.

package harm

import (
	"fmt"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
)

// piece is one piece of work.
type piece struct {
	lock   uint16
	number int64
}

type repeatedWork struct {
	run    results.Run
	first  map[piece]history.Event
	done   int64
	again  int64
	wanted map[history.User]int64 // since when a user wants its work
	read   map[history.User]int64 // when it read the latest finished work
	served *hdrhistogram.Histogram
	found  results.Finding
}

// RepeatedWork judges jobs that are to be done once.
var RepeatedWork = results.CheckerKind{
	Name: "repeated_work", New: newRepeatedWork,
	Doc: "Each piece of work is done exactly once.",
	Counts: []results.Quantity{
		{
			Name: "repeated_work", Doc: "workload `once`: pieces of work that were done again",
			Tone: results.Doubtful, Of: acknowledgedWrites,
		},
	},
	Measures: []results.Quantity{
		{Name: "work_done", Doc: "workload `once`: executions per piece of work"},
		{Name: "repeated_per_10000", Doc: "workload `once`: repeated executions per 10,000 pieces of work"},
		{Name: "served_p50_ms", Doc: "workload `once`: time from when a piece of work was due until a user knew that it was done, median"},
		{Name: "served_p99_ms", Doc: "the same, 99th percentile"},
	},
	Witnesses: results.Aside("repeated_work"),
}

func newRepeatedWork(run results.Run) results.Checker {
	const longest, digits = int64(1e12), 3 // ns
	return &repeatedWork{
		run: run, first: map[piece]history.Event{}, wanted: map[history.User]int64{}, read: map[history.User]int64{},
		served: hdrhistogram.New(1, longest, digits),
		found:  results.Finding{Verdict: results.Clean},
	}
}

// Observe takes the next event.
func (c *repeatedWork) Observe(e *history.Event) {
	switch {
	case c.run.Writes != writesWork:
	case e.Kind == history.Acquire && e.Phase == history.Invoke:
		c.wanted[e.User] = e.Value
	case e.Kind == history.Read && e.Phase == history.Ok:
		c.read[e.User] = e.Time
	case e.Kind == history.Write && e.Phase == history.Invoke: // it was not done
		delete(c.read, e.User)
	case e.Kind == history.Write && e.Phase == history.Ok:
		c.serve(e.User, e.Time)
		c.write(e)
	case e.Kind == history.Release: // at its invoke: its outcome finds nothing left
		if at, ok := c.read[e.User]; ok {
			c.serve(e.User, at)
		}
		delete(c.read, e.User)
	}
}

// serve records that a user knows that its work is done.
func (c *repeatedWork) serve(u history.User, at int64) {
	if since := c.wanted[u]; since > 0 && at > since && c.run.Counts(since) {
		_ = c.served.RecordValue(at - since) // no run has longer times
	}
	delete(c.wanted, u)
}

func (c *repeatedWork) write(e *history.Event) {
	c.done++
	p := piece{e.Lock, e.Value}
	first, again := c.first[p]
	if !again {
		c.first[p] = *e
		return
	}
	c.again++
	c.found.Found(e.Lock, 1)
	c.found.Prove(results.Witness{
		Kind: "repeated_work", Lock: c.run.LockName(e.Lock), From: first.Time, To: e.Time,
		Text: fmt.Sprintf("piece of work %d of %s was done by %v at %s and again by %v at %s",
			e.Value, c.run.LockName(e.Lock), first.User, c.run.MS(first.Time), e.User, c.run.MS(e.Time)),
		Events: []history.Event{first, *e},
	})
}

// Finish returns the finding.
func (c *repeatedWork) Finish() results.Finding {
	f := c.found
	switch {
	case c.run.Writes != writesWork:
		return f.NotApplicable("the workload's writes are no " + writesWork)
	case c.done == 0:
		return f.NotApplicable("no write was acknowledged")
	}
	done, rate := float64(c.done), 1e4*float64(c.again)/float64(len(c.first))
	f.Measures = map[string]*float64{"work_done": &done, "repeated_per_10000": &rate}
	if c.served.TotalCount() > 0 {
		for name, q := range map[string]float64{"served_p50_ms": 50, "served_p99_ms": 99} {
			v := results.Milli(c.served.ValueAtQuantile(q))
			f.Measures[name] = &v
		}
	}
	return f.Judged("repeated_work", c.again, c.done)
}
