package report

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
)

// lanes puts the first user to the left, the lock service and the resource in the middle, and everybody else to the
// right, so that no arrow crosses a hold of the two that matter most. A server has a lane of its own where it did
// something of its own.
func (s *story) lanes() {
	sc := s.scene
	nodes := sc.nodes()
	for i, u := range sc.users {
		l := lane{Kind: laneClient, Name: sc.name(u), Sub: fmt.Sprintf("user %d", u.Index()), User: u, Hue: i}
		if !strings.HasPrefix(l.Name, clientName(u)) {
			l.Sub = clientName(u)
		}
		s.Lanes = append(s.Lanes, l)
		if i > 0 {
			continue
		}
		if len(nodes) == 0 && !sc.env.NoLock {
			s.Lanes = append(s.Lanes, lane{
				Kind: laneService, Name: "lock service",
				Sub: cmp.Or(sc.env.Backend, "unknown"),
			})
		}
		for _, n := range nodes {
			s.Lanes = append(s.Lanes, lane{Kind: laneNode, Name: n})
		}
		if sc.touched() {
			s.Lanes = append(s.Lanes, lane{
				Kind: laneResource, Name: cmp.Or(sc.env.Resource, "resource"),
				Sub: "guard " + cmp.Or(sc.env.Guard, "none"),
			})
		}
	}
}

// touched tells whether the resource was involved: somebody read or wrote there, or a fault hit it.
func (sc *scene) touched() bool {
	return slices.ContainsFunc(sc.events, isEffect) || slices.ContainsFunc(sc.faults, func(f history.Fault) bool {
		return slices.ContainsFunc(f.Targets, sc.isResource)
	})
}

// nodes lists the servers that need a lane: a fault hit them, they took the lead, they granted what is drawn, or
// they took writes when they were asked all the time.
func (sc *scene) nodes() []string {
	var out, keepers []string
	for _, o := range sc.seen {
		if o.By == history.ByGrant && !slices.Contains(keepers, o.Node) {
			keepers = append(keepers, o.Node)
		}
	}
	add := func(node string) {
		if node != "" && !slices.Contains(out, node) && (len(keepers) == 0 || slices.Contains(keepers, node)) {
			out = append(out, node)
		}
	}
	from, to := sc.span()
	for _, f := range sc.faults {
		if f.Start > to || f.End != 0 && f.End < from {
			continue
		}
		for _, t := range f.Targets {
			if sc.isServer(t) {
				add(t)
			}
		}
		if f.Lead != nil {
			add(f.Lead.Old)
			add(f.Lead.New)
		}
	}
	for _, h := range sc.holds {
		for _, n := range sc.keepers(h) {
			add(n)
		}
	}
	for _, o := range sc.seen {
		if strings.HasPrefix(o.Fact, history.FactTakes) && o.Answer == "true" {
			add(o.Node)
		}
	}
	slices.SortFunc(out, byNumber)
	return out
}

// byNumber puts redis-2 before redis-10.
func byNumber(a, b string) int {
	cut := func(s string) (string, int) {
		i := strings.LastIndexByte(s, '-')
		n, err := strconv.Atoi(s[i+1:])
		if err != nil {
			return s, 0
		}
		return s[:i+1], n
	}
	an, ai := cut(a)
	bn, bi := cut(b)
	return cmp.Or(cmp.Compare(an, bn), cmp.Compare(ai, bi))
}

// span is the time of the scene's events.
func (sc *scene) span() (from, to int64) {
	if len(sc.events) == 0 {
		return 0, 0
	}
	last := sc.events[len(sc.events)-1].Time
	if sc.gap != nil {
		last = max(last, sc.gap.To)
	}
	return sc.events[0].Time, last
}

// keepers lists the servers that had a grant right after it was given, but for the replicas that copied it.
func (sc *scene) keepers(h results.HoldRef) []string {
	var out []string
	for _, o := range sc.seen {
		if o.By != history.ByGrant || o.User == nil || *o.User != h.User || o.Grant != h.Grant || o.Answered < h.Start {
			continue
		}
		if sc.ledAt(o.Step, o.Node) && !slices.Contains(out, o.Node) && sc.first(o) {
			out = append(out, o.Node)
		}
	}
	slices.SortFunc(out, byNumber)
	return out
}

// answered leaves out the servers whose answers never reached the client, where the lock recorded which ones did.
func (sc *scene) answered(h results.HoldRef, keepers []string) []string {
	r, ok := sc.reasons[reasonKey{true, h.User, h.Grant}]
	if !ok || r.Code != history.CauseAnsweredBy {
		return keepers
	}
	var all, out []string
	for _, o := range sc.seen {
		if o.By == history.ByGrant && !slices.Contains(all, o.Node) {
			all = append(all, o.Node)
		}
	}
	slices.SortFunc(all, byNumber)
	for i, node := range all {
		if int64(len(all)) == r.Value && i < 64 && r.Token&(1<<i) != 0 {
			out = append(out, node)
		}
	}
	return out
}

// first tells whether a server was asked because of this very grant: a later grant asks every server anew.
func (sc *scene) first(o history.Observation) bool {
	return !slices.ContainsFunc(sc.seen, func(p history.Observation) bool {
		return p.By == history.ByGrant && p.User != nil && *p.User == *o.User && p.Grant == o.Grant && p.Step < o.Step
	})
}

// ledAt tells whether a server was one that takes writes when a step asked it. One that did not tell its role was.
func (sc *scene) ledAt(step int, node string) bool {
	for _, o := range sc.seen {
		if o.By == history.ByGrant && o.Step == step && o.Node == node && o.Fact == "role" && o.Answer != "" {
			return leads(o.Answer)
		}
	}
	return true
}

// leads tells whether a role is one that takes writes.
func leads(role string) bool { return slices.Contains([]string{"leader", "primary", "master"}, role) }

// client finds the lane of a user; -1 where it has none.
func (s *story) client(u history.User) int {
	return slices.IndexFunc(s.Lanes, func(l lane) bool { return l.Kind == laneClient && l.User == u })
}

// node finds the lane of a server; -1 where it has none.
func (s *story) node(name string) int {
	return slices.IndexFunc(s.Lanes, func(l lane) bool { return l.Kind == laneNode && l.Name == name })
}

func (s *story) lane(k laneKind) int {
	return slices.IndexFunc(s.Lanes, func(l lane) bool { return l.Kind == k })
}

// service is the lane of messages to the lock service where nobody knows which server took them: the only one, or
// the whole group.
func (s *story) service() int {
	if l := s.lane(laneService); l >= 0 {
		return l
	}
	asked := map[string]bool{}
	for _, o := range s.scene.seen {
		if o.By == history.ByGrant {
			asked[o.Node] = true
		}
	}
	if len(asked) == 1 {
		return s.lane(laneNode)
	}
	return atService
}
