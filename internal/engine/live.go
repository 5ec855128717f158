package engine

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/internal/wire"
)

// live is what the engine knows of the run while it runs: who has which grant in hand, and when each client was last
// heard. Selectors and awaits read it; nothing is judged from it.
type live struct {
	mu      sync.Mutex
	holds   map[history.User]*hold
	seen    map[history.User]map[occurrence]int // events of a user since its last acquire was ordered
	points  map[string]int                      // "user point" -> times reached
	heard   map[int]int64                       // client index -> ns when its stream last brought something
	grants  int64
	waiters int
	changed chan struct{} // closed, and made anew, when something changed and somebody waits
}

// hold is a grant that a user has in hand, as its stream told.
type hold struct {
	user     history.User
	grant    uint32
	lock     uint16
	start    int64
	valid    int64
	released int64 // time of the release invoke; 0 while held
	lost     bool
}

type occurrence struct {
	kind  history.Kind
	phase history.Phase
}

func newLive() *live {
	return &live{
		holds: map[history.User]*hold{}, seen: map[history.User]map[occurrence]int{}, points: map[string]int{},
		heard: map[int]int64{}, changed: make(chan struct{}),
	}
}

// observe takes a batch of one client's events.
func (l *live) observe(client int, batch []history.Event, directed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.heard[client] = clock.Now()
	for i := range batch {
		l.apply(&batch[i])
		if directed {
			l.note(&batch[i])
		}
	}
	l.wake()
}

func (l *live) apply(e *history.Event) {
	switch {
	case e.Kind == history.Acquire && e.Phase == history.Ok:
		l.grants++
		h := l.holds[e.User]
		if h == nil {
			h = &hold{user: e.User}
			l.holds[e.User] = h
		}
		*h = hold{user: e.User, grant: e.Op, lock: e.Lock, start: e.Time, valid: e.Valid}
	case e.Kind == history.Release && e.Phase == history.Invoke:
		if h := l.holds[e.User]; h != nil && h.grant == e.Grant && h.released == 0 {
			h.released = e.Time
		}
	case e.Kind == history.Lost:
		if h := l.holds[e.User]; h != nil && h.grant == e.Grant {
			h.lost = true
		}
	case e.Kind == history.Renewed, e.Kind == history.Renew && e.Phase == history.Ok:
		if h := l.holds[e.User]; h != nil && h.grant == e.Grant {
			h.valid = max(h.valid, e.Valid)
		}
	}
}

func (l *live) note(e *history.Event) {
	m := l.seen[e.User]
	if m == nil {
		m = map[occurrence]int{}
		l.seen[e.User] = m
	}
	m[occurrence{e.Kind, e.Phase}]++
}

// reached records that a user waits at, or died at, an armed point.
func (l *live) reached(client int, p wire.Point) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.points[pointKey(history.MakeUser(client, p.User), p.Point)]++
	l.wake()
}

func pointKey(u history.User, point string) string { return fmt.Sprintf("%v %s", u, point) }

// forget begins a new count of a user's events, and of one of its points.
func (l *live) forget(u history.User) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.seen, u)
}

func (l *live) forgetPoint(u history.User, point string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.points, pointKey(u, point))
}

// wake must be called with the mutex held.
func (l *live) wake() {
	if l.waiters > 0 {
		close(l.changed)
		l.changed = make(chan struct{})
	}
}

// wait returns when cond holds or ctx ends. cond is called with the mutex held.
func (l *live) wait(ctx context.Context, cond func() bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiters++
	defer func() { l.waiters-- }()
	for !cond() {
		ch := l.changed
		l.mu.Unlock()
		select {
		case <-ch:
			l.mu.Lock()
		case <-ctx.Done():
			l.mu.Lock()
			return context.Cause(ctx)
		}
	}
	return nil
}

// nextGrant waits for a grant that arrives from now on, of the given lock or, for -1, of any, and returns its hold.
func (l *live) nextGrant(ctx context.Context, lock int) (hold, error) {
	var found hold
	since := clock.Now()
	err := l.wait(ctx, func() bool {
		for _, h := range l.holds {
			if h.start > since && h.released == 0 && !h.lost && (lock < 0 || int(h.lock) == lock) && h.start > found.start {
				found = *h
			}
		}
		return found.grant != 0
	})
	return found, err
}

// anyHold returns a hold of that lock that is in hand now, whenever it began: directed runs have few grants.
func (l *live) anyHold(ctx context.Context, lock int) (hold, error) {
	var found hold
	err := l.wait(ctx, func() bool {
		for _, h := range l.holds {
			if h.released == 0 && !h.lost && (lock < 0 || int(h.lock) == lock) && h.start > found.start {
				found = *h
			}
		}
		return found.grant != 0
	})
	return found, err
}

// current returns the user's present hold; ok is false when it has none.
func (l *live) current(u history.User) (h hold, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p := l.holds[u]; p != nil {
		return *p, true
	}
	return hold{}, false
}

// quiet returns when the client's stream brought nothing for d, counted from now at the earliest.
func (l *live) quiet(ctx context.Context, client int, d time.Duration) error {
	since := clock.Now()
	for {
		l.mu.Lock()
		last := max(l.heard[client], since)
		l.mu.Unlock()
		rest := time.Duration(last+int64(d)) - time.Duration(clock.Now())
		if rest <= 0 {
			return nil
		}
		if err := sleep(ctx, rest); err != nil {
			return err
		}
	}
}

// granted returns the number of grants so far.
func (l *live) granted() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.grants
}

// sleep waits for d or until ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
