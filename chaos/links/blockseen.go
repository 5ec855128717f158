package links

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/history"
)

// findings groups the lanes of one target by what was seen of them, in the order of the first of each group.
type findings struct {
	order []string
	peers map[string][]string
}

func (f *findings) add(what, peer string) {
	if f.peers == nil {
		f.peers = make(map[string][]string)
	}
	if f.peers[what] == nil {
		f.order = append(f.order, what)
	}
	f.peers[what] = append(f.peers[what], peer)
}

// String groups the peers: "to etcd-2, etcd-3: passed before, nothing arrives now".
func (f *findings) String() string {
	var parts []string
	for _, what := range f.order {
		way, found, _ := strings.Cut(what, " ")
		parts = append(parts, way+" "+strings.Join(f.peers[what], ", ")+": "+found)
	}
	return strings.Join(parts, "; ")
}

func (l seenLane) way() string {
	if l.outward {
		return "to"
	}
	return "from"
}

// judge makes the receipt of one target from the probes before and after.
func (b *block) judge(t chaos.Node, now ProbeResult) (history.Receipt, error) {
	if len(now.Peers) == 0 {
		return chaos.Seen(history.Indeterminate, 0, t.Name()+": its links were not probed: "+now.Control), nil
	}
	var found findings
	status, cut := history.Installed, 0
	worse := func(s history.ReceiptStatus) {
		if chaos.Worse(s, status) {
			status = s
		}
	}
	missing := b.each(t, now, func(l seenLane) {
		switch {
		case l.asked && l.is.Arrived:
			worse(history.NotInstalled)
			found.add(l.way()+" "+l.word("datagrams still arrive", "connections are still answered"), l.peer)
		case l.asked && !l.was.Arrived:
			found.add(l.way()+" nothing passed before either", l.peer)
		case l.asked && l.is.Dial != "" && l.is.Dial != Refused:
			worse(history.NotInstalled)
			found.add(l.way()+" datagrams do not arrive, but a connection is not refused: "+l.is.Dial, l.peer)
		case l.asked:
			cut++
			found.add(l.way()+" "+b.gone(l), l.peer)
		case l.was.Arrived && !l.is.Arrived && len(b.scope.LinkFaults.Changed(b.noted, l.Lane, b.since)) > 0:
			found.add(l.way()+" nothing arrives, but by another fault", l.peer)
		case l.was.Arrived && !l.is.Arrived:
			worse(history.Indeterminate)
			found.add(l.way()+" nothing arrives, although only the other direction should be cut", l.peer)
		case l.is.Arrived:
			found.add(l.way()+" still open, as it should be", l.peer)
		}
	})
	for _, name := range missing {
		found.add("to has no process, its link was not probed", name)
	}
	if cut == 0 {
		worse(history.Indeterminate)
	}
	evidence := t.Name() + ": " + found.String()
	switch was := b.before[t.Name()].Control; {
	case now.Control == "":
		evidence += "; from inside its own namespace it is reached"
	case was == "":
		worse(history.Indeterminate)
		evidence += "; from inside its own namespace it is no longer reached: " + now.Control
	default:
		evidence += "; from inside its own namespace it was not reached before either: " + was
	}
	return chaos.Seen(status, 0, evidence), nil
}

// word returns one text for datagrams, and another for connections.
func (l seenLane) word(datagrams, connections string) string {
	if l.shaken {
		return connections
	}
	return datagrams
}

// gone describes what was seen of a lane that is cut.
func (b *block) gone(l seenLane) string {
	text := fmt.Sprintf(l.word("passed before, nothing of %d datagrams arrives now",
		"connections were answered before, none of %d is now"), l.is.Sent)
	if l.is.Dial == Refused {
		text += ", a connection is refused at once"
	}
	return text
}

// judgeHealed makes the receipt of the heal at one target: lanes that were cut pass again. If another link fault was
// active on a lane since the heal began, a failed probe proves nothing, and the receipt relies on the rules being gone.
func (b *block) judgeHealed(t chaos.Node, now ProbeResult, begun int64) (history.Receipt, error) {
	if len(now.Peers) == 0 {
		return chaos.Seen(history.Installed, 0, t.Name()+": the rules are gone; its links were not probed: "+
			now.Control), nil
	}
	var found findings
	var still []string
	missing := b.each(t, now, func(l seenLane) {
		others := b.scope.LinkFaults.Others(b.noted, l.Lane, begun)
		switch {
		case !l.asked || !l.was.Arrived:
		case l.is.Arrived:
			found.add(l.way()+" passes again", l.peer)
		case len(others) > 0:
			found.add(l.way()+" does not pass, which is not judged: "+others.String(), l.peer)
		default:
			still = append(still, l.way()+" "+l.peer)
			found.add(fmt.Sprintf("%s does not pass again within %s", l.way(), probePatience.Round(time.Second)),
				l.peer)
		}
	})
	for _, name := range missing {
		found.add("to has no process, its link was not probed", name)
	}
	evidence := t.Name() + ": " + found.String()
	if len(still) > 0 {
		return chaos.Seen(history.NotInstalled, 0, evidence), errors.New("still cut: " + strings.Join(still, ", "))
	}
	return chaos.Seen(history.Installed, 0, evidence), nil
}
