// Package quorum derives one resource's effects from its replicas' effects.
package quorum

import (
	"cmp"
	"slices"

	"github.com/lockquake/lockquake/history"
)

// Quorum derives one resource's effects from its replicas' effects.
//
// An effect counts from the moment at which a majority of the replicas has applied it. It is refused from the moment
// at which so many have refused it that no majority is left. A write applied on fewer is no effect of the resource:
// it comes at the end, with phase info.
type Quorum struct {
	replicas []string
	open     map[accessKey]*ballot
	last     int64 // ns: the latest event
}

// accessKey identifies an access on any replica.
type accessKey struct {
	user   history.User
	grant  uint32
	lock   uint16
	kind   history.Kind
	number int64
}

// ballot is the state of an access.
type ballot struct {
	event            history.Event // where it was first observed
	applied, refused replicaSet
}

// MaxReplicas is the maximum number of replicas of a resource.
const MaxReplicas = 64

// replicaSet has a bit for each replica, by its number.
type replicaSet uint64

func (s *replicaSet) add(i int) (grew bool) {
	grew = *s&(1<<i) == 0
	*s |= 1 << i
	return grew
}

func (s replicaSet) size() (n int) {
	for ; s != 0; s &= s - 1 {
		n++
	}
	return n
}

// New returns a Quorum of the replicas with these names.
func New(replicas []string) *Quorum {
	return &Quorum{replicas: replicas, open: map[accessKey]*ballot{}}
}

// Part is the role of an event in the run.
type Part uint8

// What an event may be.
const (
	Own   Part = iota // of the process that wrote it
	Whole             // the resource as a whole did this now
	None              // a replica did this, which decides nothing
)

// Take takes the next event. The replicas' own final reads are ignored: the engine's final read has the majority's
// value.
func (q *Quorum) Take(process string, e *history.Event) Part {
	q.last = max(q.last, e.Time)
	i := slices.Index(q.replicas, process)
	switch {
	case i < 0:
		return Own
	case e.Kind == history.Final:
		return None
	case e.Kind != history.EffectRead && e.Kind != history.EffectWrite:
		return Own // such as a stall
	case q.decides(i, e):
		return Whole
	}
	return None
}

// decides reports whether the event of replica i decides the access that it is part of.
func (q *Quorum) decides(i int, e *history.Event) bool {
	key := accessKey{e.User, e.Grant, e.Lock, e.Kind, e.Valid}
	b := q.open[key]
	if b == nil {
		b = &ballot{event: *e}
		q.open[key] = b
	}
	n := len(q.replicas)
	majority := n/2 + 1
	switch e.Phase {
	case history.Ok:
		return b.applied.add(i) && b.applied.size() == majority
	case history.Fail:
		return b.refused.add(i) && b.refused.size() == n-majority+1
	default:
		return false
	}
}

// Minority returns the writes that never reached a majority, in the order in which they first reached a replica.
func (q *Quorum) Minority() []history.Event {
	var out []history.Event
	for _, b := range q.open {
		if n := b.applied.size(); b.event.Kind == history.EffectWrite && n > 0 && n <= len(q.replicas)/2 {
			out = append(out, b.event)
		}
	}
	slices.SortFunc(out, func(a, b history.Event) int {
		return cmp.Or(cmp.Compare(a.Time, b.Time), cmp.Compare(a.User, b.User), cmp.Compare(a.Valid, b.Valid),
			cmp.Compare(a.Lock, b.Lock))
	})
	for i := range out {
		out[i].Time, out[i].Phase, out[i].Code = q.last, history.Info, history.CodeNone
	}
	return out
}
