// Primaries: at no time do two servers take writes where one lock is kept.
//
// A scenario has servers asked, all the time, to take a write beside the lock's key (observe: takes-writes:LOCK). One that acknowledges
// each time certainly takes writes from its first acknowledgement to the sending of the last question. Where that of two servers
// overlaps, both served as primaries.
//
// It cannot see what is shorter than the pause between two questions, so the figure is a lower bound. Servers that are independent of
// each other on purpose take writes all the time.

package results

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/lockquake/lockquake/history"
)

type primaries struct{ run Run }

func newPrimaries(run Run) Checker { return primaries{run} }

// Observe passes the events over: what counts is what the servers said.
func (primaries) Observe(*history.Event) {}

// service is a time in which a server took every write that it was asked to take.
type service struct {
	span
	said history.Observation
}

// Finish returns the finding.
func (c primaries) Finish() Finding {
	f := Finding{Checker: "primaries", Verdict: Clean, Measures: map[string]*float64{"both_primaries_served_ms": nil}}
	asked, served := map[string]map[string]bool{}, map[string][]service{} // by lock
	for _, o := range c.run.Observed {
		lock, ok := strings.CutPrefix(o.Fact, history.FactTakes)
		if !ok || o.By != history.ByObserve || o.Answer == "" {
			continue
		}
		if asked[lock] == nil {
			asked[lock] = map[string]bool{}
		}
		asked[lock][o.Node] = true
		if o.Answer == "true" {
			served[lock] = append(served[lock], service{span{o.Answered, o.LastAsked}, o})
		}
	}
	var total int64
	judged := false
	for _, lock := range c.run.Locks {
		if len(asked[lock]) < 2 || len(served[lock]) == 0 {
			continue // nobody could have taken writes beside another
		}
		judged = true
		both := overlaps(served[lock])
		total += length(both)
		f.Witnesses = append(f.Witnesses, c.witnesses(lock, both)...)
	}
	if !judged {
		f.Verdict, f.Skipped = Unknown, "no two servers were asked all the time whether they take writes"
		return f
	}
	f.Verdict = verdictOf(total)
	f.Witnesses = f.Witnesses[:min(len(f.Witnesses), MaxWitnesses)]
	f.Measures["both_primaries_served_ms"] = measure(milli(total))
	return f
}

// shared is a time in which two servers took writes.
type shared struct {
	a, b service
	span
}

// overlaps lists the times that two servers have in common, in their order.
func overlaps(list []service) []shared {
	var out []shared
	for i, a := range list {
		for _, b := range list[i+1:] {
			both := span{max(a.from, b.from), min(a.until, b.until)}
			if a.said.Node != b.said.Node && both.from < both.until {
				out = append(out, shared{a, b, both})
			}
		}
	}
	slices.SortStableFunc(out, func(a, b shared) int { return cmp.Compare(a.from, b.from) })
	return out
}

// length is how long any two served; what three share counts once.
func length(list []shared) int64 {
	var total, until int64
	for _, s := range list {
		total += max(0, s.until-max(s.from, until))
		until = max(until, s.until)
	}
	return total
}

func (c primaries) witnesses(lock string, list []shared) []Witness {
	var out []Witness
	for _, s := range list {
		out = append(out, Witness{
			Kind: "two_primaries", Lock: lock, From: s.from, To: s.until, Events: []history.Event{}, Observed: []history.Observation{s.a.said, s.b.said},
			Text: fmt.Sprintf("%s took each of %d writes beside %s that it was asked to take from %s to %s, and %s each of %d from %s to %s",
				s.a.said.Node, s.a.said.Count, lock, c.run.ms(s.a.from), c.run.ms(s.a.until), s.b.said.Node, s.b.said.Count, c.run.ms(s.b.from), c.run.ms(s.b.until)),
		})
	}
	return out
}
