package links

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/clock"
)

// compare pairs the measurements now with those before. besides returns the other faults that may have caused a
// difference.
func (x *shapeInjection) compare(t chaos.Node, now []MeasuredLink,
	besides func(chaos.Lane) chaos.Beside,
) (lanes []shapedLane, missing []string) {
	before := x.was[t.Name()]
	for i, is := range now {
		peer := x.block.scope.Peers[i]
		if is.Missing || len(before) == 0 || before[i].Missing {
			missing = append(missing, peer.Name())
			continue
		}
		was := before[i]
		if is.Shake != nil && was.Shake != nil {
			others := append(besides(x.block.lane(t, peer, true)), besides(x.block.lane(t, peer, false))...)
			lanes = append(lanes, shapedLane{
				peer: peer.Name(), outward: true, ways: x.fault.Direction.ways(),
				was: *was.Shake, is: *is.Shake, others: others,
			})
			continue
		}
		add := func(outward bool, before, now Flow) {
			l := x.block.lane(t, peer, outward)
			lanes = append(lanes, shapedLane{
				peer: peer.Name(), outward: outward, was: before, is: now,
				others: besides(l),
			})
		}
		if x.fault.Direction.out() {
			add(true, was.Out, is.Out)
		}
		if x.fault.Direction.in() {
			add(false, was.In, is.In)
		}
	}
	return lanes, missing
}

// judgeShaped makes the receipt of one target. If some links show the fault, the worst link decides; links that showed
// too little do not count against it.
func (x *shapeInjection) judgeShaped(t chaos.Node, now []MeasuredLink) history.Receipt {
	lanes, missing := x.compare(t, now, func(l chaos.Lane) chaos.Beside {
		return x.block.scope.LinkFaults.Changed(x.block.noted, l,
			x.block.since)
	})
	by := map[history.ReceiptStatus]int{}
	var lacking []string
	for _, l := range lanes {
		status := x.status(l)
		if status == history.Installed && x.fault.complete != nil {
			if status = x.fault.complete(l); status != history.Installed {
				lacking = append(lacking, l.way())
			}
		}
		by[status]++
	}
	status := history.Indeterminate
	switch {
	case by[history.NotInstalled] > 0:
		status = history.NotInstalled
	case by[history.Installed] > 0:
		status = history.Installed
	}
	evidence := t.Name() + ": " + x.evidence(lanes, missing)
	if len(lacking) > 0 {
		evidence += "; the rest of the request is not visible " + strings.Join(lacking, ", ")
	}
	return chaos.Seen(status, 0, evidence)
}

// status judges whether a lane was hit. If another fault came or went since the measurement before, it never returns
// NotInstalled.
func (x *shapeInjection) status(l shapedLane) history.ReceiptStatus {
	if l.was.Arrived == 0 {
		return history.Indeterminate
	}
	status := x.fault.shows(l)
	if status == history.NotInstalled && len(l.others) > 0 {
		return history.Indeterminate
	}
	return status
}

// evidence groups the lanes of a target by their direction and by whether they were hit.
func (x *shapeInjection) evidence(lanes []shapedLane, missing []string) string {
	var parts []string
	apart := Flow{TwoClocks: true}
	for _, kind := range []shapedLane{
		{outward: true},
		{},
		{outward: true, is: apart},
		{is: apart},
		{outward: true, ways: x.fault.Direction.ways()},
	} {
		for _, status := range []history.ReceiptStatus{history.Installed, history.NotInstalled, history.Indeterminate} {
			var group []shapedLane
			var names []string
			for _, l := range lanes {
				if l.outward == kind.outward && l.ways == kind.ways && l.is.TwoClocks == kind.is.TwoClocks &&
					x.status(l) == status {
					group, names = append(group, l), append(names, l.peer)
				}
			}
			if len(group) == 0 {
				continue
			}
			group[0].peer = strings.Join(names, ", ")
			parts = append(parts, group[0].way()+": "+x.fault.text(group))
		}
	}
	if len(missing) > 0 {
		parts = append(parts, strings.Join(missing, ", ")+": no process or no measurement, the link was not measured")
	}
	if len(parts) == 0 {
		return "its links could not be measured"
	}
	return strings.Join(parts, "; ")
}

// mostLooks is how often the links are measured after a heal while they still show the fault: a burst of datagrams that
// a busy machine loses or delays looks like one.
const mostLooks = 3

// unshape removes the rules everywhere, and checks that the links are as before and that nothing is left. If another
// link fault was active on a lane since the heal began, a measurement proves nothing, and the receipt relies on the
// rules being gone.
func (x *shapeInjection) unshape(ctx context.Context) (history.Receipt, error) {
	begun := clock.Now()
	met, failed := x.block.takeDown(ctx)
	views := make(map[string]*healLooks)
	for _, t := range x.shapers {
		views[t.Name()] = &healLooks{}
	}
	besides := func(l chaos.Lane) chaos.Beside { return x.block.scope.LinkFaults.Others(x.block.noted, l, begun) }
	for range mostLooks {
		now, acts := x.measure(ctx, x.was), false
		for _, t := range x.shapers {
			views[t.Name()].add(x, t, now[t.Name()], besides)
			acts = acts || len(views[t.Name()].still) > 0
		}
		if !acts || failed != nil || ctx.Err() != nil { // rules that were not removed need no measurement
			break
		}
		x.sparse = true
	}
	receipt, err := chaos.OnEach(x.shapers, func(t shapable) (history.Receipt, error) {
		r := chaos.Seen(history.Installed, 0, t.Name()+": "+views[t.Name()].evidence(x))
		if still := views[t.Name()].still; len(still) > 0 {
			return r, fmt.Errorf("%s still acts on %s %s", x.fault.kind, t.Name(), strings.Join(still, ", "))
		}
		return r, nil
	})
	receipt.Evidence += fmt.Sprintf("; %s, %v", goneText(met, failed), shapedText(met.Shaped))
	if met.Shaped != nil {
		receipt.Figures = map[string]float64{"packets": float64(met.Shaped.Passed)}
	}
	return receipt, errors.Join(failed, err)
}

// healLooks collects the measurements of a target's lanes after the heal.
type healLooks struct {
	looks   int
	still   []string // lanes that showed the fault at the first measurement, and that no later one cleared
	first   string   // what they showed
	lanes   []shapedLane
	missing []string
}

// add evaluates one measurement. A lane on which nothing arrives, or that was not measured, is not cleared.
func (a *healLooks) add(x *shapeInjection, t chaos.Node, now []MeasuredLink, besides func(chaos.Lane) chaos.Beside) {
	lanes, missing := x.compare(t, now, besides)
	var acting []shapedLane
	cleared := make(map[string]bool)
	for _, l := range lanes {
		switch {
		case len(l.others) > 0:
		case x.status(l) == history.Installed:
			acting = append(acting, l)
		default:
			cleared[l.way()] = l.is.Arrived > 0
		}
	}
	if a.looks++; a.looks == 1 {
		for _, l := range acting {
			a.still = append(a.still, l.way())
		}
		if len(acting) > 0 {
			a.first = strings.Join(a.still, ", ") + ": " + x.fault.text(acting)
		}
	} else {
		a.still = slices.DeleteFunc(a.still, func(way string) bool { return cleared[way] })
	}
	if a.looks == 1 || len(lanes) > 0 {
		a.lanes, a.missing = lanes, missing
	}
}

// evidence describes what the last measurement showed, and the first one if there were several.
func (a *healLooks) evidence(x *shapeInjection) string {
	text := x.evidence(a.lanes, a.missing)
	for _, l := range a.lanes {
		if len(l.others) > 0 && x.status(l) == history.Installed {
			text += fmt.Sprintf("; %s is not judged by that: %v", l.way(), l.others)
		}
	}
	if a.looks > 1 && a.first != "" {
		text += fmt.Sprintf("; this is measurement %d; the first one: %s", a.looks, a.first)
	}
	return text
}
