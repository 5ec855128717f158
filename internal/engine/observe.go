package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/internal/wire"
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/scenarios"
)

// Times of questions to the service.
const (
	askAgain = 10 * time.Millisecond // after an answer that is not the one that a step waits for
	askLimit = time.Second           // for one answer
	// holderWait is how long the step after a grant waits for what the servers have of it, so that what it breaks comes later.
	holderWait = 50 * time.Millisecond
	// mute is the silence between two equal answers from which on nobody knows what the answer was meanwhile.
	mute = 100 * time.Millisecond
)

// question is what a node is asked, and on which step's account.
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
}

// sightings is what the service said when it was asked: equal answers in a row are one observation.
type sightings struct {
	mu     sync.Mutex
	list   []*history.Observation
	latest map[question]*history.Observation
	grants map[string]grantKey // by the lock's own id of the grant
}

func newSightings() *sightings {
	return &sightings{latest: map[question]*history.Observation{}, grants: map[string]grantKey{}}
}

// add takes one answer.
func (s *sightings) add(q question, r reply) {
	text := ""
	if r.err != nil {
		text = r.err.Error()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	last := s.latest[q]
	if last == nil || last.Answer != r.answer || (last.Error == "") != (text == "") || r.asked-last.LastAnswered > int64(mute) {
		last = &history.Observation{
			Step: q.step, By: q.by, Node: q.node, Fact: q.fact, Answer: r.answer, Error: text, Asked: r.asked, Answered: r.answered,
			LastAnswered: r.asked,
		}
		s.list, s.latest[q] = append(s.list, last), last
	}
	last.Gap = max(last.Gap, r.asked-last.LastAnswered)
	last.LastAsked, last.LastAnswered = r.asked, r.answered
	last.Count++
}

// granted notes by which id the service knows a grant.
func (s *sightings) granted(id string, k grantKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if id != "" {
		s.grants[id] = k
	}
}

// write puts everything on disk, in the order in which it was asked.
func (s *sightings) write(dir string) error {
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
		if k, ok := s.grants[o.Answer]; ok && strings.HasPrefix(o.Fact, history.FactHolder) {
			o.User, o.Grant = &k.user, k.grant
		}
		errs = append(errs, enc.Encode(o))
	}
	return errors.Join(append(errs, os.WriteFile(filepath.Join(dir, results.FileObserved), b.Bytes(), 0o644))...)
}

// ask asks once, and puts the answer on record.
func (r *run) ask(ctx context.Context, q question) (string, error) {
	asked := clock.Now()
	answer, err := r.service.Ask(ctx, q.node, q.fact)
	if err != nil {
		answer = ""
	}
	r.seen.add(q, reply{asked, clock.Now(), answer, err})
	return answer, err
}

// observeStep puts a fact of some nodes on record: once each, or all the time until the steps are over.
func (r *run) observeStep(ctx context.Context, number int, st scenarios.Step) error {
	nodes := r.plan.observed[number-1]
	var group sync.WaitGroup
	errs := make([]error, len(nodes))
	for i, n := range nodes {
		q := question{number, history.ByObserve, n, st.Observe}
		group.Go(func() { errs[i] = r.askUntilAnswered(ctx, q, st.Every > 0) })
		if st.Every == 0 {
			continue
		}
		r.asking.Go(func() {
			for clock.Sleep(r.steering, st.Every) == nil {
				limited, cancel := context.WithTimeout(r.steering, askLimit)
				_, _ = r.ask(limited, q) // an error is an observation too
				cancel()
			}
		})
	}
	group.Wait()
	return errors.Join(errs...)
}

// askUntilAnswered returns when the node has answered, or, with once, has been asked.
func (r *run) askUntilAnswered(ctx context.Context, q question, once bool) error {
	for {
		limited, cancel := context.WithTimeout(ctx, askLimit)
		_, err := r.ask(limited, q)
		cancel()
		if err == nil || once {
			return nil
		}
		if serr := clock.Sleep(ctx, askAgain); serr != nil {
			return fmt.Errorf("%s: %w; the last answer was an error: %w", q.node, serr, err)
		}
	}
}

// done puts on record what a step that was done shows.
func (r *run) done(number int, st scenarios.Step, res wire.Result) {
	_, user := r.person(st.User)
	switch {
	case res.Outcome != wire.OutcomeOK:
	case st.Do == wire.DoAcquire:
		r.granted(number, user, slices.Index(r.plan.locks, st.Lock), res)
	case st.Do == wire.DoContinue:
		r.passed(number, st, "left")
	}
}

// granted notes what a user was granted, and asks the servers that may disagree which of them know of it.
func (r *run) granted(number int, user history.User, lock int, res wire.Result) {
	if h, ok := r.live.last(user, lock); ok {
		r.seen.granted(res.Grant, grantKey{user, h.grant})
	}
	keeper, ok := r.service.(backends.Keeper)
	if !ok {
		return
	}
	facts := []string{history.FactHolder + r.plan.locks[lock]}
	if _, ok := r.service.Facts()[chaos.FactRole]; ok {
		facts = append(facts, chaos.FactRole) // a replica that has a key was not the one to grant it
	}
	answered := make(chan struct{})
	var group sync.WaitGroup
	for _, n := range keeper.Keepers() {
		for _, fact := range facts {
			group.Go(func() {
				limited, cancel := context.WithTimeout(r.steering, askLimit)
				defer cancel()
				_, _ = r.ask(limited, question{number, history.ByGrant, n, fact}) // who does not answer is not known to have it
			})
		}
	}
	r.asking.Go(func() { group.Wait(); close(answered) })
	select {
	case <-answered:
	case <-time.After(holderWait):
	}
}

// passed puts on record that a user came to a point, or went on from it.
func (r *run) passed(number int, st scenarios.Step, how string) {
	s, _ := r.person(st.User)
	now := clock.Now()
	r.seen.add(question{number, history.ByPoint, s.node.Name(), st.Point}, reply{now, now, how, nil})
}

// passage says what comes of a user at the point that a step awaits: it waits there, or dies.
func (p *Plan) passage(number int, st scenarios.Step) string {
	how := "reached"
	for _, before := range p.scenario.Steps[:number-1] {
		if before.Do == wire.DoArm && before.User == st.User && before.Point == st.Point {
			how = "reached"
			if before.Action == wire.ActionDie {
				how = "died"
			}
		}
	}
	return how
}
