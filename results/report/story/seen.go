package story

import (
	"slices"
	"strings"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/results/figure"
	"github.com/lockquake/lockquake/results/report/scene"
)

// seenMarker draws servers' answers, and where users were held.
type seenMarker marker

// seenMarks adds the points at which users were held, and news from servers with a lane: the primary, a missing key,
// a server that took writes.
func (mk seenMarker) seenMarks() {
	mk.primaries()
	begin, end := mk.story.span()
	for _, o := range mk.scene.Seen {
		if o.Answered < begin || o.Asked > end || o.By == history.ByAnswer {
			continue
		}
		switch {
		case o.By == history.ByPoint:
			mk.point(o)
		case strings.HasPrefix(o.Fact, history.FactTakes) && o.Answer == "true":
			if n := mk.story.Lanes.node(o.Node); n >= 0 {
				mk.story.Serves = append(mk.story.Serves, Band{Lane: n, From: o.Answered, To: o.LastAsked})
			}
		case strings.HasPrefix(o.Fact, history.FactHolder):
			mk.keySeen(o)
		case o.By == history.ByAwait:
			mk.awaited(o)
		}
	}
}

// primaries adds for how long two servers took writes, according to the judge.
func (mk seenMarker) primaries() {
	for w := range scene.Witnesses(mk.scene.Report, results.DrawServers) {
		if len(w.Observed) != 2 {
			continue
		}
		a, b, long := w.Observed[0].Node, w.Observed[1].Node, figure.Duration(w.To-w.From)
		if n := mk.story.Lanes.node(b); n >= 0 {
			mk.story.add(Mark{
				Time: w.From, Kind: MarkSeen, Lane: n, To: nowhere, Weight: weightTurn,
				Label: "accepts writes next to " + a + ", for " + long,
				Say:   a + " and " + b + " both accept writes, for " + long,
			})
		}
	}
}

// point adds that a user was held at a point, or went on from it.
func (mk seenMarker) point(o history.Observation) {
	c, ok := history.ClientOf(o.Node)
	l := mk.story.Lanes.client(history.MakeUser(c, 0))
	if !ok || l < 0 {
		return
	}
	what := map[string]string{
		history.PointReached: "is held at the point " + o.Fact, history.PointDied: "dies at the point " + o.Fact,
		history.PointLeft: "goes on",
	}[o.Answer]
	at := o.Answered
	if o.Answer == history.PointLeft {
		at = mk.wentOn(o)
	}
	mk.story.add(Mark{
		Time: at, Kind: MarkNote, Lane: l, To: nowhere, Label: what, Say: mk.story.Lanes[l].Name + " " + what,
		Weight: weightLoss,
	})
}

// wentOn returns when a user went on from a point. The record of that comes after its next event.
func (mk seenMarker) wentOn(left history.Observation) int64 {
	var held int64
	for _, o := range mk.scene.Seen {
		if o.By == history.ByPoint && o.Node == left.Node && o.Fact == left.Fact && o.Answer == history.PointReached &&
			o.Answered < left.Answered {
			held = max(held, o.Answered)
		}
	}
	c, _ := history.ClientOf(left.Node)
	for _, e := range mk.scene.Events {
		if e.User.Client() == c && e.Time > held && e.Time <= left.Answered &&
			(e.Phase != history.Info || e.Kind < history.Renewed) {
			return e.Time - 1
		}
	}
	return left.Answered
}

// keySeen adds that a server no longer has a user's key that it had before, although no user released it there.
func (mk seenMarker) keySeen(o history.Observation) {
	n, on := mk.story.Lanes.node(o.Node), ""
	if n < 0 {
		n, on = mk.story.Lanes.kind(LaneService), o.Node+": " // one lane for all servers
	}
	if n < 0 || o.Answer == "" || o.By == history.ByGrant {
		return
	}
	if mk.left(o) {
		who := mk.scene.Name(*o.User)
		mk.story.add(Mark{
			Time: o.Answered, Kind: MarkSeen, Lane: n, To: nowhere, Label: on + "still has the key of " + who,
			Say:    o.Node + " still has the key of " + who + ", although " + who + " has given it back",
			Weight: weightTurn,
		})
		return
	}
	var before *history.Observation
	for i := range mk.scene.Seen {
		p := &mk.scene.Seen[i]
		if p.Node == o.Node && p.Fact == o.Fact && p.Answer != "" && p.Answered < o.Asked {
			before = p
		}
	}
	if before == nil || before.User == nil || before.Answer == o.Answer || mk.released(*before, o) {
		return
	}
	who := mk.scene.Name(*before.User)
	now := "gone"
	if o.User != nil {
		now = "gone: it has that of " + mk.scene.Name(*o.User)
	}
	mk.story.add(Mark{
		Time: o.Answered, Kind: MarkSeen, Lane: n, To: nowhere, Label: on + "the key of " + who + " is " + now,
		Say: "on " + o.Node + " the key of " + who + " is " + now, Weight: weightTurn,
	})
}

// left reports whether a server has a key although its holder's release was answered before. Only the first such
// answer is news.
func (mk seenMarker) left(o history.Observation) bool {
	if o.User == nil {
		return false
	}
	over := func(before int64) bool {
		return slices.ContainsFunc(mk.scene.Events, func(e history.Event) bool {
			return e.Kind == history.Release && e.Phase != history.Invoke && e.User == *o.User && e.Grant == o.Grant &&
				e.Time < before
		})
	}
	told := slices.ContainsFunc(mk.scene.Seen, func(p history.Observation) bool {
		return p.Node == o.Node && p.Fact == o.Fact && p.Answer == o.Answer && p.Asked < o.Asked && over(p.Asked)
	})
	return over(o.Asked) && !told
}

// released reports whether the holder of a key began to release it between two observations.
func (mk seenMarker) released(before, after history.Observation) bool {
	return slices.ContainsFunc(mk.scene.Events, func(e history.Event) bool {
		return e.Kind == history.Release && e.Phase == history.Invoke && e.User == *before.User &&
			e.Grant == before.Grant && e.Time < after.Answered
	})
}

// awaited adds an answer that a step waited for and that names the primary.
func (mk seenMarker) awaited(o history.Observation) {
	fact, _, _ := strings.Cut(o.Fact, ":")
	lane, label := mk.story.Lanes.node(o.Node), ""
	switch {
	case fact == "primary" || fact == "master" || fact == "leader":
		if lane = mk.story.Lanes.node(o.Answer); lane < 0 || mk.known(o) {
			return
		}
		label = "the primary now, says " + o.Node
		if fact == "primary" && o.Fact == fact {
			label = "the primary now, by most accounts"
		}
	case lane < 0:
		return
	case fact == "role" && mk.changed(o):
		label = "says: I am a " + o.Answer
	case fact == "state" && mk.changed(o):
		label = "says: state " + o.Answer
	}
	if label != "" {
		mk.story.add(Mark{
			Time: o.Answered, Kind: MarkSeen, Lane: lane, To: nowhere, Label: label,
			Say: mk.story.Lanes[lane].Name + " is " + label, Weight: weightTurn,
		})
	}
	if strings.HasPrefix(label, "says") {
		mk.story.Marks[len(mk.story.Marks)-1].Say = o.Node + " " + label
	}
}

// known reports whether the primary that an answer names was named before, or was the primary from the start.
func (mk seenMarker) known(o history.Observation) bool {
	granted := false
	for _, p := range mk.scene.Seen {
		fact, _, _ := strings.Cut(p.Fact, ":")
		if p.By == history.ByAwait && (fact == "primary" || fact == "master" || fact == "leader") &&
			p.Answer == o.Answer && p.Asked < o.Asked {
			return true
		}
		granted = granted || p.By == history.ByGrant && p.Node == o.Answer && p.Fact == "role" &&
			scene.Leads(p.Answer) && p.Answered < o.Asked
	}
	return granted
}

// changed reports whether the node's previous answer was different.
func (mk seenMarker) changed(o history.Observation) bool {
	last := ""
	for _, p := range mk.scene.Seen {
		if p.Node == o.Node && p.Fact == o.Fact && p.Answer != "" && p.Answered < o.Asked {
			last = p.Answer
		}
	}
	return last != "" && last != o.Answer
}
