package story

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results/figure"
)

// faultMarker draws which faults hit which lanes, and when.
type faultMarker marker

// faultMarks adds the faults that hit a lane while it mattered: a band on each lane, a row for the start and a row
// for the end.
func (mk faultMarker) faultMarks() {
	from, to := mk.story.span()
	for _, f := range mk.scene.Faults {
		begin := f.Start
		if f.Bit != 0 {
			begin = f.Bit
		}
		if f.Receipt.Sent != 0 { // a signal's consequences are later, but may be observed before its effect
			begin = f.Receipt.Sent
		}
		if f.Lead != nil && f.Lead.Led != 0 && f.Lead.Led <= begin {
			begin = max(f.Start, f.Lead.Led-1) // its death was observed later than its consequences
		}
		if dead := mk.deathBy(f); dead > f.Start && dead <= begin {
			begin = dead - 1 // the kill was observed after the death
		}
		if begin > to || f.End != 0 && f.End < from {
			continue
		}
		if hit := mk.hit(f); len(hit) > 0 {
			mk.fault(f, hit, begin)
		}
	}
}

// deathBy returns when a client that the fault was aimed at was observed dead; 0 for none.
func (mk faultMarker) deathBy(f history.Fault) int64 {
	for _, e := range mk.scene.Events {
		if e.Kind == history.Dead && e.Time >= f.Start &&
			slices.Contains(f.Targets, history.ClientName(e.User.Client())) {
			return e.Time
		}
	}
	return 0
}

// fault adds one fault.
func (mk faultMarker) fault(f history.Fault, hit []int, begin int64) {
	words := mk.faultWords(f)
	end := f.End
	if f.Undo != 0 && !f.Traits.Kills { // a killed process runs once the heal is done
		end = f.Undo // packets pass and processes run from then on, though that was observed later
	}
	if f.Traits.Kills && f.Healed != nil && f.Healed.Time > f.Undo && f.Healed.Time < end {
		end = f.Healed.Time // it was observed to serve before the heal was done
	}
	if f.Traits.Kills && !f.Traits.Returns && !slices.ContainsFunc(f.Targets, mk.scene.IsServer) {
		end = 0
	}
	for _, l := range hit {
		mk.story.Bands = append(mk.story.Bands, Band{Lane: l, From: begin, To: end})
	}
	who := mk.who(f)
	label := words.began
	if l := mk.story.Lanes[hit[0]]; l.Kind == LaneService || len(hit) > 1 || l.Kind == LaneResource && l.Name != who {
		label = who + ": " + label
	}
	mk.story.add(Mark{
		Time: begin, Kind: MarkFault, Lane: hit[0], To: nowhere, Label: label, Weight: weightTurn,
		Say: fmt.Sprintf("%s: %s (receipt %s: %s)", who, words.began, f.Receipt.Status,
			figure.Shorten(mk.scene.Named(firstClause(f.Receipt.Evidence)), 80)),
	})
	if end != 0 && words.ended != "" {
		label := words.ended
		if mk.story.Lanes[hit[0]].Kind == LaneService {
			label = who + ": " + label
		}
		mk.story.add(Mark{
			Time: end, Kind: MarkFault, Lane: hit[0], To: nowhere, Label: label, Weight: weightEnd,
			Say: fmt.Sprintf("%s: %s", who, words.ended),
		})
	}
	if f.Lead != nil {
		mk.lead(f.Lead)
	}
}

// subject matches the node at the start of a receipt's evidence: "redis-1: to redis-2, redis-3: ".
var subject = regexp.MustCompile(`^[a-z0-9-]+: (to [a-z0-9, -]+: )?`)

// firstClause returns the first clause of a receipt's evidence, without the name of the node.
func firstClause(evidence string) string {
	first, _, _ := strings.Cut(evidence, "; ")
	return subject.ReplaceAllString(first, "")
}

// lead adds the server that was observed as leader after a fault at a leader.
func (mk faultMarker) lead(l *history.Lead) {
	if n := mk.story.Lanes.node(l.New); n >= 0 && l.Led != 0 {
		label := "leads now"
		if l.Epoch != "" {
			label += ", in epoch " + l.Epoch
		}
		mk.story.add(Mark{
			Time: l.Led, Kind: MarkSeen, Lane: n, To: nowhere, Label: label, Say: l.New + " " + label,
			Weight: weightTurn,
		})
	}
	if n := mk.story.Lanes.node(l.Old); n >= 0 && l.Noticed != 0 {
		mk.story.add(Mark{
			Time: l.Noticed, Kind: MarkSeen, Lane: n, To: nowhere, Label: "reports that it is not the leader",
			Weight: weightEnd,
			Say:    l.Old + " reports that it is not the leader",
		})
	}
}

// hit returns the lanes of a fault: of its targets, every user of a client, the resource, or the service.
func (mk faultMarker) hit(f history.Fault) []int {
	targets := f.Targets
	if f.Traits.AtPeers {
		targets = f.Peers
	}
	var out []int
	add := func(l int) {
		if l >= 0 && !slices.Contains(out, l) {
			out = append(out, l)
		}
	}
	for _, t := range targets {
		switch c, isClient := history.ClientOf(t); {
		case isClient:
			for i, l := range mk.story.Lanes {
				if l.Kind == LaneClient && l.User.Client() == c {
					add(i)
				}
			}
		case mk.scene.IsResource(t):
			add(mk.story.Lanes.kind(LaneResource))
		case mk.story.Lanes.node(t) >= 0:
			add(mk.story.Lanes.node(t))
		default:
			add(mk.story.Lanes.kind(LaneService))
		}
	}
	return out
}

// who names the targets of a fault as the picture does.
func (mk faultMarker) who(f history.Fault) string {
	var out []string
	for _, t := range f.Targets {
		out = append(out, mk.scene.NodeName(t))
	}
	return figure.List(brief(out))
}

// brief shortens a long list.
func brief(names []string) []string {
	if len(names) <= 3 {
		return names
	}
	return []string{names[0], names[1], fmt.Sprintf("%d others", len(names)-2)}
}

type faultText struct{ began, ended string }

// faultWords returns the words for a fault's start and end on a lane.
func (mk faultMarker) faultWords(f history.Fault) faultText {
	var far []string
	for _, p := range f.Peers {
		far = append(far, mk.scene.NodeName(p))
	}
	if t := f.Traits; t.Began != "" {
		fill := func(text string) string {
			return placeholder.ReplaceAllStringFunc(text, func(key string) string {
				if key = strings.Trim(key, "{}"); key != "peers" {
					return param(f.Params, key)
				}
				return figure.List(brief(far))
			})
		}
		return faultText{fill(t.Began), fill(t.Ended)}
	}
	return faultText{f.Name + " begins", f.Name + " healed"}
}

// placeholder matches the place of a key in a fault's words.
var placeholder = regexp.MustCompile(`\{[a-z-]+\}`)

// param returns the value of one of a fault's own keys from its record: "by: +60s, how: faketime".
func param(params, name string) string {
	for part := range strings.SplitSeq(params, ", ") {
		if v, ok := strings.CutPrefix(part, name+": "); ok {
			return strings.Trim(v, `"`)
		}
	}
	return ""
}
