package engine

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/internal/wire"
)

// live is the table of what the clients have told so far: who has which grant in hand, and when each client was last
// heard. The target holder and the awaits of steps read it; nothing is judged from it.
type live struct {
	mu sync.Mutex
	// in hand now: granted, and no release begun; values, since each grant of a run passes here
	holds   map[grantKey]hold
	latest  map[lockKey]hold   // the last grant of a user and lock, directed runs only
	seen    map[occurrence]int // events of a user since its last acquire was ordered, directed runs only
	points  map[string]int     // "user point" -> times reached
	heard   map[int]int64      // client index -> ns when its stream last brought something
	delays  delays             // of the clients' streams
	grants  int64
	first   int64 // ns of the first grant; 0 while there is none
	waiters int
	changed chan struct{} // closed, and made anew, when something changed and a waiter is there
}

type grantKey struct {
	user  history.User
	grant uint32
}

type lockKey struct {
	user history.User
	lock uint16
}

// hold is a grant that a user has in hand, as its stream told.
type hold struct {
	user  history.User
	grant uint32
	lock  uint16
	start int64
	valid int64
	lost  bool
}

// occurrence is a kind of event of one user; lock is -1 where any will do.
type occurrence struct {
	user  history.User
	lock  int
	kind  history.Kind
	phase history.Phase
}

func newLive() *live {
	return &live{
		holds: map[grantKey]hold{}, latest: map[lockKey]hold{}, seen: map[occurrence]int{}, points: map[string]int{},
		heard: map[int]int64{}, changed: make(chan struct{}),
	}
}

// observe takes a batch of one client's events.
func (l *live) observe(client int, batch []history.Event, directed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := clock.Now()
	l.heard[client] = now
	if len(batch) > 0 {
		l.delays.add(now, now-batch[0].Time)
	}
	for i := range batch {
		l.apply(&batch[i], directed)
		if directed {
			l.note(&batch[i])
		}
	}
	l.wake()
}

// mark takes events that are not a client's own: what the resource did, what the engine saw.
func (l *live) mark(batch ...history.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range batch {
		l.note(&batch[i])
	}
	l.wake()
}

func (l *live) apply(e *history.Event, directed bool) {
	switch {
	case e.Kind == history.Acquire && e.Phase == history.Ok:
		l.grants++
		if l.first == 0 || e.Time < l.first {
			l.first = e.Time
		}
		l.holds[grantKey{e.User, e.Op}] = hold{user: e.User, grant: e.Op, lock: e.Lock, start: e.Time, valid: e.Valid}
	case e.Kind == history.Release && e.Phase == history.Invoke:
		delete(l.holds, grantKey{e.User, e.Grant})
		return
	case e.Kind == history.Lost:
		l.change(e, func(h *hold) { h.lost = true })
		return
	case e.Kind == history.Renewed, e.Kind == history.Renew && e.Phase == history.Ok:
		l.change(e, func(h *hold) { h.valid = max(h.valid, e.Valid) })
	default:
		return
	}
	if !directed {
		return
	}
	grant := e.Grant
	if e.Kind == history.Acquire {
		grant = e.Op
	}
	if h, ok := l.holds[grantKey{e.User, grant}]; ok {
		l.latest[lockKey{h.user, h.lock}] = h
	}
}

// change alters the hold that an event is about, if it is in hand.
func (l *live) change(e *history.Event, how func(*hold)) {
	k := grantKey{e.User, e.Grant}
	if h, ok := l.holds[k]; ok {
		how(&h)
		l.holds[k] = h
	}
}

func (l *live) note(e *history.Event) {
	l.seen[occurrence{e.User, int(e.Lock), e.Kind, e.Phase}]++
	l.seen[occurrence{e.User, -1, e.Kind, e.Phase}]++
}

// reached records that a user waits at, or died at, an armed point.
func (l *live) reached(client int, p wire.Point) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.points[pointKey(history.MakeUser(client, p.User), p.Point)]++
	l.wake()
}

func pointKey(u history.User, point string) string { return fmt.Sprintf("%v %s", u, point) }

// forget begins a new count of a user's events.
func (l *live) forget(u history.User) {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.seen, func(o occurrence, _ int) bool { return o.user == u })
}

// forgetPoint begins a new count of a user's passages of a point.
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
	return l.grantAfter(ctx, clock.Now(), lock)
}

// heldFor waits for a grant that arrives from now on and is still in hand when d has passed since it was seen.
func (l *live) heldFor(ctx context.Context, lock int, d time.Duration) (hold, error) {
	since := clock.Now()
	for {
		h, err := l.grantAfter(ctx, since, lock)
		if err == nil {
			err = clock.Sleep(ctx, d)
		}
		if err != nil || l.held(h.user, h.grant) {
			return h, err
		}
	}
}

// anyHold returns a hold of that lock that is in hand now, whenever it began: directed runs have few grants.
func (l *live) anyHold(ctx context.Context, lock int) (hold, error) {
	return l.grantAfter(ctx, 0, lock)
}

// grantAfter waits for a hold that began after ns since, and returns the latest.
func (l *live) grantAfter(ctx context.Context, since int64, lock int) (found hold, err error) {
	err = l.wait(ctx, func() bool {
		for _, h := range l.holds {
			if h.start > since && !h.lost && (lock < 0 || int(h.lock) == lock) && h.start > found.start {
				found = h
			}
		}
		return found.grant != 0
	})
	return found, err
}

// held tells whether a user still has that grant in hand.
func (l *live) held(u history.User, grant uint32) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	h, ok := l.holds[grantKey{u, grant}]
	return ok && !h.lost
}

// last returns the last grant of a user and lock, or of the user alone for -1; ok is false when it never had one.
func (l *live) last(u history.User, lock int) (found hold, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for k, h := range l.latest {
		if k.user == u && (lock < 0 || int(k.lock) == lock) && (!ok || h.start > found.start) {
			found, ok = h, true
		}
	}
	return found, ok
}

// removeHolds takes the holds of a dead client out of hand and returns them.
func (l *live) removeHolds(client int) []hold {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []hold
	for k, h := range l.holds {
		if k.user.Client() == client {
			out = append(out, h)
			delete(l.holds, k)
		}
	}
	return out
}

// keeps reports whether a user whose client was stopped still has a grant in hand. It reads the client's stream until
// that brings the grant's end, or was silent for long enough to be read to its end: counted from now at the earliest,
// and at least twice as long as any event was under way lately. A busy machine delays what a client wrote before it was
// stopped.
func (l *live) keeps(ctx context.Context, u history.User, grant uint32) (held bool, silent time.Duration, err error) {
	since := clock.Now()
	for {
		held = l.held(u, grant)
		now := clock.Now()
		l.mu.Lock()
		last := max(l.heard[u.Client()], since)
		silent = min(max(silence, 2*l.delays.longest(now)), maxSilence)
		l.mu.Unlock()
		rest := time.Duration(last+int64(silent)) - time.Duration(now)
		if rest <= 0 || !held {
			return held, silent, nil
		}
		if err := clock.Sleep(ctx, min(rest, silence)); err != nil {
			return false, silent, err
		}
	}
}

const (
	// silence is how long a stopped client's stream must bring nothing before it counts as read to its end.
	silence = 20 * time.Millisecond
	// maxSilence bounds what a slow stream makes of it: a holder that is stopped for long is another fault than the one
	// that was asked for.
	maxSilence = 500 * time.Millisecond
	// delaysKept is for how long a delay is remembered, and for at most twice as long.
	delaysKept = 2 * time.Second
)

// delays remembers how long events were under way from their client lately.
type delays struct {
	began        int64 // ns: the start of the current span
	before, span int64 // ns: the longest delay of the span before, and of the current one
}

func (d *delays) add(now, delay int64) {
	d.turn(now)
	d.span = max(d.span, delay)
}

func (d *delays) longest(now int64) time.Duration {
	d.turn(now)
	return time.Duration(max(d.before, d.span))
}

func (d *delays) turn(now int64) {
	switch age := time.Duration(now - d.began); {
	case age >= 2*delaysKept:
		*d = delays{began: now}
	case age >= delaysKept:
		*d = delays{began: now, before: d.span}
	}
}

// granted returns the number of grants so far, and of those that are in hand.
func (l *live) granted() (all int64, held int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.grants, len(l.holds)
}

// firstGrant returns when the first grant was in hand, or 0 where there was none.
func (l *live) firstGrant() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.first
}
