package story

import (
	"fmt"
	"slices"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/results/report/scene"
)

// A Story is the content of a picture, before anything has a place: the participants, and the order of events. Each
// mark stands for an event, a fault record, a server's answer, or a validity of the run.
type Story struct {
	Title   string
	Text    string
	InAll   string // figures that the scenario names and that have no time
	Foot    string
	Backend string
	NoLock  bool
	Start   int64 // ns: zero of the axis
	Lanes   Lanes
	Holds   []Bar
	Bands   []Band
	Serves  []Band // when a server certainly took writes
	Regions []Region
	Marks   []Mark // in the order of time
	Others  int    // grants to users that are not drawn, within the time of the picture
	Skipped int    // accesses of the drawn holds that are not drawn
}

// LaneKind is the kind of a lane's participant.
type LaneKind uint8

// The kinds of lanes.
const (
	LaneClient  LaneKind = iota
	LaneService          // the whole lock service
	LaneNode             // one of its servers
	LaneResource
)

// Lane is one participant.
type Lane struct {
	Kind LaneKind
	Name string
	Sub  string
	User history.User // of a client
	Hue  int          // of a client: index of its colour
}

// Bar is one hold.
type Bar struct {
	Ref      results.HoldRef
	Lane     int
	Asked    int64   // ns: acquire invoke
	Renewals []int64 // ns
}

// Band is a stretch of time on a lane.
type Band struct {
	Lane     int
	From, To int64 // ns; To 0: to the end
}

// Region is the time in which two holds overlap.
type Region struct {
	A, B     int // lanes
	From, To int64
	Double   bool // both were entitled
}

// MarkKind is how a mark is drawn.
type MarkKind uint8

// The kinds of marks.
const (
	MarkAsk      MarkKind = iota // client to service
	MarkAnswer                   // service to client
	MarkExchange                 // both, one right after the other
	MarkRead
	MarkWrite
	MarkStale
	MarkRefused
	MarkNote // words beside a lane
	MarkFault
	MarkSeen // what a server said
	MarkSent // an access leaves its client, long before its effect
	MarkRegion
)

// Ends of arrows that end at no lane.
const (
	nowhere   = -1
	AtService = -2 // the lock service, with an unknown server
)

// Mark is one row of the picture.
type Mark struct {
	Time  int64
	Since int64 // ns: when an access left its client, if that was notably earlier; else 0
	Kind  MarkKind
	Lane  int   // its subject
	To    int   // far end of an arrow
	At    []int // lanes of the servers at which a grant was observed; To is the farthest
	Bad   bool  // it did not succeed
	Label string
	Below string // second line, under the arrow
	Event string // the event in the history, such as "renew ok"; "" for all else
	// Say is the mark as a sentence, "" if it is not worth one; explanations use the weightiest sentences.
	Say    string
	Weight int
}

func (s *Story) add(m Mark) { s.Marks = append(s.Marks, m) }

// span returns the time of the drawn holds and marks.
func (s *Story) span() (from, to int64) {
	for i, h := range s.Holds {
		if i == 0 || h.Ref.Start < from {
			from = h.Ref.Start
		}
		to = max(to, h.Ref.End, h.Ref.Start)
	}
	for _, m := range s.Marks {
		if from == 0 || m.Time < from {
			from = m.Time
		}
		to = max(to, m.Time)
	}
	return from, to
}

// end returns the end of a hold, or of the picture if it has none.
func (s *Story) end(h results.HoldRef) int64 {
	if h.End != 0 {
		return h.End
	}
	_, to := s.span()
	return to
}

// hold returns the bar of a grant.
func (s *Story) hold(u history.User, grant uint32) *Bar {
	i := slices.IndexFunc(s.Holds, func(h Bar) bool { return h.Ref.User == u && h.Ref.Grant == grant })
	if i < 0 {
		return nil
	}
	return &s.Holds[i]
}

// HasMark reports whether a lane has a mark at a time.
func (s *Story) HasMark(lane int, t int64) bool {
	return slices.ContainsFunc(s.Marks, func(m Mark) bool { return m.Lane == lane && m.Time == t })
}

// moment formats a time as explanations do.
func (s *Story) moment(t int64) string { return fmt.Sprintf("t+%.3f s", float64(t-s.Start)/1e9) }

// The weights of sentences: explanations use the heaviest ones.
const (
	weightTopic  = 10 // what the scenario names
	weightHarm   = 9  // two hold the lock, or harm is done
	weightTurn   = 8  // a fault, a death, a promotion
	weightGrant  = 7
	weightLoss   = 6 // a user learns of a loss, or is refused
	weightAccess = 4
	weightEnd    = 3 // a release, a heal
	weightTrifle = 1
)

// marker adds marks to a story: all of one subject in a scene.
type marker struct {
	scene *scene.Scene
	story *Story
}
