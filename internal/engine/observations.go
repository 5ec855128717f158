package engine

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

// maxGap is the longest time between two equal answers of one observation. After a longer one the answer may have
// been another meanwhile.
const maxGap = 100 * time.Millisecond

// question is what a node is asked, and for which step.
type question struct {
	step       int // from 1
	by         string
	node, fact string
}

// reply is what came of asking once.
type reply struct {
	asked, answered int64
	answer          string
	err             error
	endsIn          *int64
}

// observations are the service's answers. Equal answers in a row are one observation.
type observations struct {
	mu     sync.Mutex
	list   []*history.Observation
	latest map[question]*history.Observation
	grants map[string]live.GrantKey // by the lock's own id of the grant
}

func newObservations() *observations {
	return &observations{latest: map[question]*history.Observation{}, grants: map[string]live.GrantKey{}}
}

// add takes one answer.
func (s *observations) add(q question, r reply) {
	text := ""
	if r.err != nil {
		text = r.err.Error()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	last := s.latest[q]
	if last == nil || last.Answer != r.answer || (last.Error == "") != (text == "") ||
		r.asked-last.LastAnswered > int64(maxGap) {
		last = &history.Observation{
			Step: q.step, By: q.by, Node: q.node, Fact: q.fact, Answer: r.answer, Error: text, Asked: r.asked,
			Answered:     r.answered,
			LastAnswered: r.asked, EndsIn: r.endsIn,
		}
		s.attribute(last)
		s.list, s.latest[q] = append(s.list, last), last
	}
	last.Gap = max(last.Gap, r.asked-last.LastAnswered)
	last.LastAsked, last.LastAnswered = r.asked, r.answered
	last.Count++
}

// attribute names the grant whose id an answer is, where the engine was told of it. The process id of a session stands
// for one grant after the other, so this is done when the answer comes, and for the rest at the end.
func (s *observations) attribute(o *history.Observation) {
	if k, ok := s.grants[o.Answer]; ok && o.User == nil &&
		(strings.HasPrefix(o.Fact, history.FactHolder) || strings.HasPrefix(o.Fact, history.FactKeys)) {
		o.User, o.Grant = &k.User, k.Grant
	}
}

// granted notes by which id the service knows a grant.
func (s *observations) granted(id string, k live.GrantKey) {
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

// write writes all observations, in the order of the questions.
func (s *observations) write(dir string) error {
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
