package clientcheck

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/wire"
)

// record is what a client reported in events.
type record struct {
	mu     sync.Mutex
	users  int         // of its workload; 0: it takes orders
	asked  map[int]int // acquires that its users were ordered and have not begun
	sense  *history.Sense
	seen   map[kindAndPhase]int
	lefts  map[history.Kind]time.Duration // from the latest invoke to the deadline that it carries
	events int64
	held   int             // grants without a release invoke or a loss
	grants []history.Event // acquire ok
}

type kindAndPhase struct {
	kind  history.Kind
	phase history.Phase
}

func newRecord(start *wire.Start) *record {
	return &record{
		asked: map[int]int{}, seen: map[kindAndPhase]int{}, lefts: map[history.Kind]time.Duration{},
		sense: history.NewSense(history.Header{Process: start.Name, Locks: start.Locks, Reentrant: true}),
	}
}

// workload expects acquires of that many users without orders.
func (r *record) workload(users int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.users = users
}

// order expects an acquire of a user.
func (r *record) order(user int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked[user]++
}

// take checks and keeps one event.
func (r *record) take(e *history.Event) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.sense.Observe(e); err != nil {
		return err
	}
	if e.Kind == history.Acquire && e.Phase == history.Invoke {
		user := e.User.Index()
		if r.asked[user]--; user >= r.users && (r.users > 0 || r.asked[user] < 0) {
			return fmt.Errorf("event %d (acquire invoke of %v): there was no such order", e.Seq, e.User)
		}
	}
	r.events++
	r.seen[kindAndPhase{e.Kind, e.Phase}]++
	if e.Phase == history.Invoke {
		r.lefts[e.Kind] = time.Duration(e.Valid - e.Time)
	}
	switch {
	case e.Kind == history.Acquire && e.Phase == history.Ok:
		r.grants = append(r.grants, *e)
		r.held++
	case e.Kind == history.Release && e.Phase == history.Invoke, e.Kind == history.Lost:
		r.held--
	}
	return nil
}

func (r *record) count(k history.Kind, p history.Phase) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.seen[kindAndPhase{k, p}]
}

// left returns the time from the latest invoke of a kind to the deadline that it carries.
func (r *record) left(k history.Kind) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lefts[k]
}

// totals returns the number of events, and of grants that were neither released nor lost.
func (r *record) totals() (events int64, held int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.events, r.held
}

// granted returns the grants.
func (r *record) granted() []history.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.grants
}

// promises checks the validity of grants.
func promises(grants []history.Event, ttl int64) error {
	unknown := 0
	for _, g := range grants {
		switch {
		case g.Valid == history.ValidUnknown:
			unknown++
		case g.Valid != history.ValidEndless && ttl > 0 && g.Valid > g.Time+ttl:
			return fmt.Errorf("event %d (acquire ok): valid is %v after the event, but the TTL is %v: the validity counts from the send time of the request",
				g.Seq, time.Duration(g.Valid-g.Time), time.Duration(ttl))
		}
	}
	if unknown == len(grants) {
		return errors.New("acquire ok: valid is unknown in all of them: no user would ever be entitled, and no double grant could be found")
	}
	return nil
}
