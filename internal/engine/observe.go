package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockquake/lockquake/backends/topology"
	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/internal/engine/deployment"
	"github.com/lockquake/lockquake/internal/engine/live"
	"github.com/lockquake/lockquake/internal/engine/plan"
	"github.com/lockquake/lockquake/internal/engine/rundir"
	"github.com/lockquake/lockquake/internal/wire"
	"github.com/lockquake/lockquake/scenarios"
)

// Times of questions to the service.
const (
	askAgain = 10 * time.Millisecond // after an answer other than the awaited one
	askLimit = time.Second           // for one answer
	// holderWait is how long a step that was granted the lock waits for the servers to say who holds it. The next
	// step may break them.
	holderWait = 50 * time.Millisecond
	// afterFailure is how long after a failed acquire the service is asked whether it was granted. The judge leaves it
	// 100 ms to clean up.
	afterFailure = 150 * time.Millisecond
)

// observer asks the service for the steps, and records the answers.
type observer struct {
	plan       *plan.Plan
	nodes      *deployment.Nodes
	live       *live.Table
	seen       *rundir.Observations
	during     context.Context // of the questions that a step repeats: it lasts as long as the steps
	background context.Context // of background questions: it lasts as long as the load
	asking     sync.WaitGroup  // background questions
}

// ask asks once, and records the answer.
func (o *observer) ask(ctx context.Context, q rundir.Question) (string, error) {
	r := rundir.Reply{Asked: clock.Now()}
	if q.Node == history.Service {
		r.Answer, r.EndsIn, r.Err = o.stored(ctx, q.Fact)
	} else {
		r.Answer, r.Err = o.nodes.Service.Ask(ctx, q.Node, q.Fact)
	}
	r.Answered = clock.Now()
	if r.Err != nil {
		r.Answer = ""
	}
	o.seen.Add(q, r)
	return r.Answer, r.Err
}

// stored asks the service as a whole who has a lock, and until when, or which keys there are.
func (o *observer) stored(ctx context.Context, fact string) (answer string, endsIn *int64, err error) {
	store, ok := o.nodes.Service.(topology.Store)
	if !ok {
		return "", nil, errNoStore
	}
	if name, ok := strings.CutPrefix(fact, history.FactHolder); ok {
		x, err := store.Stored(ctx, name)
		if x.EndsIn != nil {
			endsIn = new(int64(*x.EndsIn))
		}
		return x.Holder, endsIn, err
	}
	x, err := store.Stored(ctx, strings.TrimPrefix(fact, history.FactKeys))
	if x.Keys == nil {
		return x.Holder, nil, err
	}
	return cmp.Or(strings.Join(x.Keys, ","), "none"), nil, err
}

// errNoStore says that the service as a whole cannot be asked.
var errNoStore = errors.New("the service cannot name the owner of a lock")

// observe records a fact of some nodes: once each, or repeatedly until the steps are over.
func (o *observer) observe(ctx context.Context, number int, st scenarios.Step) error {
	nodes := o.plan.Observed[number-1]
	var group sync.WaitGroup
	errs := make([]error, len(nodes))
	for i, n := range nodes {
		q := rundir.Question{Step: number, By: history.ByObserve, Node: n, Fact: st.Observe}
		group.Go(func() { errs[i] = o.askUntilAnswered(ctx, q, st.Every > 0) })
		if st.Every == 0 {
			continue
		}
		o.asking.Go(func() {
			for clock.Sleep(o.during, st.Every) == nil {
				limited, cancel := context.WithTimeout(o.during, askLimit)
				_, _ = o.ask(limited, q) // an error is an observation too
				cancel()
			}
		})
	}
	group.Wait()
	return errors.Join(errs...)
}

// askUntilAnswered returns when the node has answered; with once, when it has been asked.
func (o *observer) askUntilAnswered(ctx context.Context, q rundir.Question, once bool) error {
	for {
		limited, cancel := context.WithTimeout(ctx, askLimit)
		_, err := o.ask(limited, q)
		cancel()
		if err == nil || once {
			return nil
		}
		if serr := clock.Sleep(ctx, askAgain); serr != nil {
			return fmt.Errorf("%s: %w; the last answer was an error: %w", q.Node, serr, err)
		}
	}
}

// granted records a user's grant. It asks the service about it, and the servers that may disagree whether they know
// it.
func (o *observer) granted(number int, user history.User, lock int, res wire.Result) {
	if h, ok := o.live.Last(user, lock); ok {
		o.seen.Granted(res.Grant, live.GrantKey{User: user, Grant: h.Grant})
	}
	holder := history.FactHolder + o.plan.Locks[lock]
	questions := []rundir.Question{{Step: number, By: history.ByAnswer, Node: history.Service, Fact: holder}}
	if keeper, ok := o.nodes.Service.(topology.Keeper); ok {
		_, ranked := o.nodes.Service.Facts()[chaos.FactRole]
		for _, n := range keeper.Keepers() {
			questions = append(questions, rundir.Question{Step: number, By: history.ByGrant, Node: n, Fact: holder})
			if ranked { // a replica with the key did not grant it
				questions = append(questions,
					rundir.Question{Step: number, By: history.ByGrant, Node: n, Fact: chaos.FactRole})
			}
		}
	}
	o.askAll(questions)
}

// answered asks the service for the lock's owner after each renewal or release.
func (o *observer) answered(number, lock int) {
	holder := history.FactHolder + o.plan.Locks[lock]
	o.askAll([]rundir.Question{{Step: number, By: history.ByAnswer, Node: history.Service, Fact: holder}})
}

// failed asks the service for the lock's owner, in the background, when a failed acquire has had time to clean up.
func (o *observer) failed(number, lock int) {
	o.asking.Go(func() {
		if clock.Sleep(o.during, afterFailure) == nil {
			o.answered(number, lock)
		}
	})
}

// askAll asks in parallel, and waits for the answers, but not for long.
func (o *observer) askAll(questions []rundir.Question) {
	if o.plan.Rules().Permits > 0 { // an answer names one holder, and there are several
		return
	}
	if _, ok := o.nodes.Service.(topology.Store); !ok {
		questions = slices.DeleteFunc(questions, func(q rundir.Question) bool { return q.Node == history.Service })
	}
	answered := make(chan struct{})
	var group sync.WaitGroup
	for _, q := range questions {
		group.Go(func() {
			limited, cancel := context.WithTimeout(o.background, askLimit)
			defer cancel()
			_, _ = o.ask(limited, q) // a server without an answer is not known to have it
		})
	}
	o.asking.Go(func() { group.Wait(); close(answered) })
	select {
	case <-answered:
	case <-time.After(holderWait):
	}
}

// passes records, once, that a user reaches an armed point that no step awaits. No other call of the user would
// record it.
func (o *observer) passes(number int, node string, user history.User, st scenarios.Step) {
	o.asking.Go(func() {
		if o.live.AwaitPoint(o.background, user, st.Point) == nil {
			o.atPoint(number, node, st.Point, plan.AtPoint(st))
		}
	})
}

// atPoint records that a user reached a point, or continued from it.
func (o *observer) atPoint(number int, node, point, how string) {
	now := clock.Now()
	o.seen.Add(rundir.Question{Step: number, By: history.ByPoint, Node: node, Fact: point},
		rundir.Reply{Asked: now, Answered: now, Answer: how})
}
