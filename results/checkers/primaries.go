// Primaries: at no time do two servers take writes for the same lock.
//
// A scenario has servers asked continuously to take a write beside the lock's key (observe: takes-writes:LOCK). A
// server that accepts each time certainly takes writes from its first yes to the sending of the last question. If
// these times of two servers overlap, both served as primaries.
//
// It cannot see overlaps that are shorter than the pause between two questions, so the figure is a lower bound.
// Servers that are independent on purpose take writes all the time.

package checkers

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
)

type primaries struct{ run results.Run }

var primariesKind = results.CheckerKind{
	Name: "primaries", New: newPrimaries,
	Doc: "Two servers never accept writes of one lock at the same time. Judged where they were asked all the time.",
	Measures: []results.Quantity{
		{
			Name: "both_primaries_served_ms",
			Doc:  "how long two servers accepted every probe write at the same time (`observe: \"takes-writes:LOCK\"`); a lower bound",
		},
	},
	Witnesses: []results.WitnessKind{{Name: "two_primaries", Draw: results.DrawServers}},
}

func newPrimaries(run results.Run) results.Checker { return primaries{run} }

// Observe ignores the events: only the servers' answers count.
func (primaries) Observe(*history.Event) {}

// service is a time in which a server took every requested write.
type service struct {
	span
	said history.Observation
}

// Finish returns the finding.
func (c primaries) Finish() results.Finding {
	f := results.Finding{Verdict: results.Clean, Measures: map[string]*float64{"both_primaries_served_ms": nil}}
	asked, served := map[string]map[string]bool{}, map[string]services{} // by lock
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
			continue // no other server could have taken writes
		}
		judged = true
		total += served[lock].both()
		f.Witnesses = append(f.Witnesses, c.witnesses(lock, served[lock].overlaps(results.MaxWitnesses))...)
	}
	if !judged {
		f.Verdict, f.Skipped = results.Unknown, "no two servers were probed for writes all the time"
		return f
	}
	f.Verdict = results.VerdictOf(total)
	f.Witnesses = f.Witnesses[:min(len(f.Witnesses), results.MaxWitnesses)]
	f.Measures["both_primaries_served_ms"] = new(results.Milli(total))
	return f
}

// services are the services of one lock, from all servers.
type services []service

// shared is a time in which two servers took writes.
type shared struct {
	a, b service
	span
}

// overlaps returns the first overlaps of two servers, in their order. The services of one server do not overlap.
func (list services) overlaps(most int) []shared {
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b service) int { return cmp.Compare(a.from, b.from) })
	var out []shared
	var open []service // one of each server
	for _, b := range list {
		if b.from >= b.until {
			continue
		}
		open = slices.DeleteFunc(open, func(a service) bool { return a.until <= b.from || a.said.Node == b.said.Node })
		for _, a := range open {
			if both := (span{b.from, min(a.until, b.until)}); both.from < both.until && len(out) < most {
				out = append(out, shared{a, b, both})
			}
		}
		if len(out) == most {
			break
		}
		open = append(open, b)
	}
	return out
}

// both returns how long any two served; time shared by three counts once.
func (list services) both() int64 {
	type end struct {
		at   int64
		node string
		n    int
	}
	var ends []end
	for _, s := range list {
		if s.from < s.until {
			ends = append(ends, end{s.from, s.said.Node, 1}, end{s.until, s.said.Node, -1})
		}
	}
	slices.SortFunc(ends, func(a, b end) int { return cmp.Compare(a.at, b.at) })
	var total int64
	serving := map[string]int{}
	for i, e := range ends {
		if len(serving) > 1 {
			total += e.at - ends[i-1].at
		}
		if serving[e.node] += e.n; serving[e.node] == 0 {
			delete(serving, e.node)
		}
	}
	return total
}

func (c primaries) witnesses(lock string, list []shared) []results.Witness {
	var out []results.Witness
	for _, s := range list {
		out = append(out, results.Witness{
			Kind: "two_primaries", Lock: lock, From: s.from, To: s.until, Events: []history.Event{},
			Observed: []history.Observation{s.a.said, s.b.said},
			Text: fmt.Sprintf("%s accepted each of %d probe writes next to %s from %s to %s, and %s each of %d from %s to %s",
				s.a.said.Node, s.a.said.Count, lock, c.run.MS(s.a.from), c.run.MS(s.a.until), s.b.said.Node,
				s.b.said.Count, c.run.MS(s.b.from), c.run.MS(s.b.until)),
		})
	}
	return out
}
