package chaos

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/clock"
)

// compare pairs what is seen now with what was seen before. besides tells of the other faults that may have made a difference.
func (x *bent) compare(t Node, now []LinkMeasured, besides func(lane) beside) (lanes []bentLane, missing []string) {
	for _, is := range now {
		var was *LinkMeasured
		for i := range x.was[t] {
			if w := &x.was[t][i]; w.Peer == is.Peer && !w.Missing {
				was = w
			}
		}
		if was == nil || is.Missing {
			missing = append(missing, is.Peer.Name())
			continue
		}
		add := func(outward bool, before, now Flow) {
			l := x.lane(t, is.Peer, outward)
			lanes = append(lanes, bentLane{peer: is.Peer.Name(), outward: outward, was: before, is: now, others: besides(l)})
		}
		if x.Direction.out() {
			add(true, was.Out, is.Out)
		}
		if x.Direction.in() {
			add(false, was.In, is.In)
		}
	}
	return lanes, missing
}

// judgeBent makes the receipt of one target: as good as its worst link, where some show it; those of which too little was seen
// do not speak against it.
func (x *bent) judgeBent(t Node, now []LinkMeasured) history.Receipt {
	lanes, missing := x.compare(t, now, func(l lane) beside { return x.scope.Lanes.changed(x.laid, l, x.since) })
	by := map[history.ReceiptStatus]int{}
	for _, l := range lanes {
		by[x.status(l)]++
	}
	status := history.Indeterminate
	switch {
	case by[history.NotInstalled] > 0:
		status = history.NotInstalled
	case by[history.Installed] > 0:
		status = history.Installed
	}
	return seen(status, 0, t.Name()+": "+x.evidence(lanes, missing))
}

// status tells whether a lane was hit. That it was not does not follow where another fault came or went since it was measured before.
func (x *bent) status(l bentLane) history.ReceiptStatus {
	if l.was.Arrived == 0 {
		return history.Indeterminate
	}
	status := x.shows(l)
	if status == history.NotInstalled && len(l.others) > 0 {
		return history.Indeterminate
	}
	return status
}

// evidence groups the lanes of a target by their direction and by whether they were hit.
func (x *bent) evidence(lanes []bentLane, missing []string) string {
	var parts []string
	for _, outward := range []bool{true, false} {
		for _, status := range []history.ReceiptStatus{history.Installed, history.NotInstalled, history.Indeterminate} {
			var group []bentLane
			var names []string
			for _, l := range lanes {
				if l.outward == outward && x.status(l) == status {
					group, names = append(group, l), append(names, l.peer)
				}
			}
			if len(group) == 0 {
				continue
			}
			group[0].peer = strings.Join(names, ", ")
			parts = append(parts, group[0].way()+": "+x.text(group))
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

// unbend takes the rules down everywhere, and sees that the links are as before and that nothing is left. Where another link fault has
// stood on the same lane since the heal was begun, nothing follows from what is measured; that the rules are gone must do.
func (x *bent) unbend(ctx context.Context) (history.Receipt, error) {
	begun := clock.Now()
	met, failed := x.takeDown(ctx)
	now := x.measure(ctx, x.was)
	besides := func(l lane) beside { return x.scope.Lanes.others(x.laid, l, begun) }
	receipt, err := onEach(x.shapers, func(t shapable) (history.Receipt, error) {
		lanes, missing := x.compare(t, now[t], besides)
		r := seen(history.Installed, 0, t.Name()+": "+x.evidence(lanes, missing))
		var still []string
		for _, l := range lanes {
			switch {
			case x.status(l) != history.Installed:
			case len(l.others) > 0:
				r.Evidence += fmt.Sprintf("; %s is not judged by that: %v", l.way(), l.others)
			default:
				still = append(still, l.way())
			}
		}
		if len(still) > 0 {
			return r, fmt.Errorf("%s still acts on %s %s", x.kind, t.Name(), strings.Join(still, ", "))
		}
		return r, nil
	})
	receipt.Evidence += fmt.Sprintf("; %s, %v", met.gone(failed), met.Shaped)
	return receipt, errors.Join(failed, err)
}
