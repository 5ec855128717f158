package rundir

import (
	"bytes"
	"encoding/json"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/engine/live"
	"github.com/lockquake/lockquake/results"
)

// maxGap is the longest time between two equal answers of one observation. In a longer gap the answer may have
// changed and changed back.
const maxGap = 100 * time.Millisecond

// Question is a question to a node, and its step.
type Question struct {
	Step       int // from 1
	By         string
	Node, Fact string
}

// Reply is the result of asking once.
type Reply struct {
	Asked, Answered int64
	Answer          string
	Err             error
	EndsIn          *int64
}

// Observations are the service's answers. Consecutive equal answers are one observation.
type Observations struct {
	mu     sync.Mutex
	list   []*history.Observation
	latest map[Question]*history.Observation
	grants map[string]live.GrantKey // by the lock's own id of the grant
}

// NewObservations returns an empty list.
func NewObservations() *Observations {
	return &Observations{latest: map[Question]*history.Observation{}, grants: map[string]live.GrantKey{}}
}

// Add takes one answer.
func (s *Observations) Add(q Question, r Reply) {
	text := ""
	if r.Err != nil {
		text = r.Err.Error()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	last := s.latest[q]
	if last == nil || last.Answer != r.Answer || (last.Error == "") != (text == "") ||
		r.Asked-last.LastAnswered > int64(maxGap) {
		last = &history.Observation{
			Step: q.Step, By: q.By, Node: q.Node, Fact: q.Fact, Answer: r.Answer, Error: text, Asked: r.Asked,
			Answered:     r.Answered,
			LastAnswered: r.Asked, EndsIn: r.EndsIn,
		}
		s.attribute(last)
		s.list, s.latest[q] = append(s.list, last), last
	}
	last.Gap = max(last.Gap, r.Asked-last.LastAnswered)
	last.LastAsked, last.LastAnswered = r.Asked, r.Answered
	last.Count++
}

// attribute sets the grant whose id an answer contains, if the engine knows it. A session's process id stands for one
// grant after the other, so this is done when the answer comes; the rest is done at the end.
func (s *Observations) attribute(o *history.Observation) {
	if k, ok := s.grants[o.Answer]; ok && o.User == nil &&
		(strings.HasPrefix(o.Fact, history.FactHolder) || strings.HasPrefix(o.Fact, history.FactKeys)) {
		o.User, o.Grant = &k.User, k.Grant
	}
}

// Granted records the id by which the service knows a grant.
func (s *Observations) Granted(id string, k live.GrantKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if id == "" {
		return
	}
	s.grants[id] = k
	// all that Postgres knows of a grant that lasts as long as a session
	if session, _, ok := strings.Cut(id, "/"); ok {
		s.grants[session] = k
	}
}

// Write writes all observations, in the order of the questions.
func (s *Observations) Write(dir string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.list) == 0 {
		return nil
	}
	slices.SortStableFunc(s.list, func(a, b *history.Observation) int { return int(a.Asked - b.Asked) })
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	var errs []error
	for _, o := range s.list {
		s.attribute(o)
		errs = append(errs, enc.Encode(o))
	}
	return errors.Join(append(errs, results.WriteAtomically(filepath.Join(dir, results.FileObserved), b.Bytes()))...)
}
