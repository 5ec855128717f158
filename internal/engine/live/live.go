// Package live is the table of what the clients of a run have reported so far.
package live

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/internal/wire"
)

// Table holds what the clients have reported so far: which user holds which grant, and when each client was last
// heard. The target holder and the awaits of steps read it; nothing is judged from it.
type Table struct {
	mu sync.Mutex
	// held now: granted, and no release begun. It has values, since each grant of a run passes here
	holds  map[GrantKey]Hold
	latest map[lockKey]Hold   // the last grant of a user and lock, directed runs only
	seen   map[occurrence]int // events of a user since its last acquire was ordered, directed runs only
	points map[string]int     // "user point" -> times reached
	heard  map[int]int64      // client index -> ns when its stream last brought something
	delays delays             // of the clients' streams
	grants int64
	first  int64 // ns of the first grant; 0: none yet
	news   news
}

// GrantKey identifies a grant.
type GrantKey struct {
	User  history.User
	Grant uint32
}

// lockKey is a lock and a user of it.
type lockKey struct {
	user history.User
	lock uint16
}

// Hold is a grant that a user holds, according to its client's stream.
type Hold struct {
	User  history.User
	Grant uint32
	Lock  uint16
	Start int64
	Valid int64
	lost  bool
}

// occurrence is a kind of event of one user; lock is -1 for any lock.
type occurrence struct {
	user  history.User
	lock  int
	kind  history.Kind
	phase history.Phase
}

// New returns an empty table.
func New() *Table {
	return &Table{
		holds: map[GrantKey]Hold{}, latest: map[lockKey]Hold{}, seen: map[occurrence]int{}, points: map[string]int{},
		heard: map[int]int64{}, news: news{changed: make(chan struct{})},
	}
}

// Observe adds a batch of one client's events.
func (l *Table) Observe(client int, batch []history.Event, directed bool) {
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
	l.news.wake()
}

// Mark adds events that are not a client's own: what the resource did, and what the engine saw.
func (l *Table) Mark(batch ...history.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range batch {
		l.note(&batch[i])
	}
	l.news.wake()
}

func (l *Table) apply(e *history.Event, directed bool) {
	switch {
	case e.Kind == history.Acquire && e.Phase == history.Ok:
		l.grants++
		if l.first == 0 || e.Time < l.first {
			l.first = e.Time
		}
		l.holds[GrantKey{e.User, e.Op}] = Hold{User: e.User, Grant: e.Op, Lock: e.Lock, Start: e.Time, Valid: e.Valid}
	case e.Kind == history.Release && e.Phase == history.Invoke:
		delete(l.holds, GrantKey{e.User, e.Grant})
		return
	case e.Kind == history.Lost:
		l.change(e, func(h *Hold) { h.lost = true })
		return
	case e.Kind == history.Renewed, (e.Kind == history.Renew || e.Kind == history.Reenter) && e.Phase == history.Ok:
		l.change(e, func(h *Hold) { h.Valid = max(h.Valid, e.Valid) })
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
	if h, ok := l.holds[GrantKey{e.User, grant}]; ok {
		l.latest[lockKey{h.User, h.Lock}] = h
	}
}

// change changes the hold that an event is about, if it is held.
func (l *Table) change(e *history.Event, how func(*Hold)) {
	k := GrantKey{e.User, e.Grant}
	if h, ok := l.holds[k]; ok {
		how(&h)
		l.holds[k] = h
	}
}

func (l *Table) note(e *history.Event) {
	l.seen[occurrence{e.User, int(e.Lock), e.Kind, e.Phase}]++
	l.seen[occurrence{e.User, -1, e.Kind, e.Phase}]++
}

// Reached records that a user waits at, or died at, an armed point.
func (l *Table) Reached(client int, p wire.Point) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.points[pointKey(history.MakeUser(client, p.User), p.Point)]++
	l.news.wake()
}

func pointKey(u history.User, point string) string { return fmt.Sprintf("%v %s", u, point) }

// Forget restarts the count of a user's events.
func (l *Table) Forget(u history.User) {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.seen, func(o occurrence, _ int) bool { return o.user == u })
}

// ForgetPoint restarts the count of a user's passages of a point.
func (l *Table) ForgetPoint(u history.User, point string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.points, pointKey(u, point))
}

// AwaitPoint waits until a user waits at, or died at, an armed point.
func (l *Table) AwaitPoint(ctx context.Context, u history.User, point string) error {
	return l.news.wait(ctx, &l.mu, func() bool { return l.points[pointKey(u, point)] > 0 })
}

// AwaitEvent waits until an event of a user was seen since its last acquire was ordered. The event is a kind and a
// phase, such as "acquire ok" or "lost"; lock is -1 for any lock.
func (l *Table) AwaitEvent(ctx context.Context, event string, u history.User, lock int) error {
	o, err := parseOccurrence(event)
	if err != nil {
		return err
	}
	o.user, o.lock = u, lock
	return l.news.wait(ctx, &l.mu, func() bool { return l.seen[o] > 0 })
}

// news wakes those who wait for a change of a table.
type news struct {
	waiters int
	changed chan struct{} // closed, and made anew, when something changed and there are waiters
}

// wake wakes the waiters. The caller holds the table's mutex.
func (n *news) wake() {
	if n.waiters > 0 {
		close(n.changed)
		n.changed = make(chan struct{})
	}
}

// wait returns when cond holds or ctx ends. cond is called with the mutex held.
func (n *news) wait(ctx context.Context, mu *sync.Mutex, cond func() bool) error {
	mu.Lock()
	defer mu.Unlock()
	n.waiters++
	defer func() { n.waiters-- }()
	for !cond() {
		ch := n.changed
		mu.Unlock()
		select {
		case <-ch:
			mu.Lock()
		case <-ctx.Done():
			mu.Lock()
			return context.Cause(ctx)
		}
	}
	return nil
}

// parseOccurrence reads "acquire ok" or "lost".
func parseOccurrence(text string) (occurrence, error) {
	kind, phase, _ := strings.Cut(text, " ")
	if phase == "" {
		phase = history.Info.String()
	}
	for k := history.Acquire; k.Known(); k++ {
		if k.String() != kind {
			continue
		}
		for p := history.Invoke; p.Known(); p++ {
			if p.String() == phase {
				return occurrence{kind: k, phase: p}, nil
			}
		}
	}
	return occurrence{}, fmt.Errorf("there is no event %q; write a kind and a phase, such as \"acquire ok\" or \"lost\"", text)
}

// HeldFor waits for a grant that arrives from now on and is still held when d has passed since it was seen.
func (l *Table) HeldFor(ctx context.Context, lock int, d time.Duration) (Hold, error) {
	since := clock.Now()
	for {
		h, err := l.GrantAfter(ctx, since, lock)
		if err == nil {
			err = clock.Sleep(ctx, d)
		}
		if err != nil || l.held(h.User, h.Grant) {
			return h, err
		}
	}
}

// GrantAfter waits for a hold of the given lock, or of any for -1, that began after ns since, and returns the latest.
func (l *Table) GrantAfter(ctx context.Context, since int64, lock int) (found Hold, err error) {
	err = l.news.wait(ctx, &l.mu, func() bool {
		for _, h := range l.holds {
			if h.Start > since && !h.lost && (lock < 0 || int(h.Lock) == lock) && h.Start > found.Start {
				found = h
			}
		}
		return found.Grant != 0
	})
	return found, err
}

// held reports whether a user still holds that grant.
func (l *Table) held(u history.User, grant uint32) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	h, ok := l.holds[GrantKey{u, grant}]
	return ok && !h.lost
}

// Last returns the last grant of a user and lock, or of the user alone for -1; ok is false if it never had one.
func (l *Table) Last(u history.User, lock int) (found Hold, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for k, h := range l.latest {
		if k.user == u && (lock < 0 || int(k.lock) == lock) && (!ok || h.Start > found.Start) {
			found, ok = h, true
		}
	}
	return found, ok
}

// RemoveHolds removes the holds of a dead client and returns them.
func (l *Table) RemoveHolds(client int) []Hold {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []Hold
	for k, h := range l.holds {
		if k.User.Client() == client {
			out = append(out, h)
			delete(l.holds, k)
		}
	}
	return out
}

// Keeps reports whether a user whose client was stopped still holds a grant. It reads the client's stream until the
// grant's end arrives, or until the stream was silent for long enough to be read to its end. The silence counts from
// now at the earliest, and is at least twice the longest recent delay of an event. A busy machine delays what a
// client wrote before it was stopped.
func (l *Table) Keeps(ctx context.Context, u history.User, grant uint32) (held bool, silent time.Duration, err error) {
	since := clock.Now()
	for {
		held = l.held(u, grant)
		now := clock.Now()
		l.mu.Lock()
		last := max(l.heard[u.Client()], since)
		silent = min(max(Silence, 2*l.delays.longest(now)), maxSilence)
		l.mu.Unlock()
		rest := time.Duration(last+int64(silent)) - time.Duration(now)
		if rest <= 0 || !held {
			return held, silent, nil
		}
		if err := clock.Sleep(ctx, min(rest, Silence)); err != nil {
			return false, silent, err
		}
	}
}

const (
	// Silence is how long a stopped client's stream must bring nothing before it counts as read to its end.
	Silence = 20 * time.Millisecond
	// maxSilence bounds the silence for a slow stream: stopping a holder for long is another fault than the one that
	// was asked for.
	maxSilence = 500 * time.Millisecond
	// delaysKept is how long a delay is remembered at least; at most it is twice as long.
	delaysKept = 2 * time.Second
)

// delays records how long events were recently under way from their client.
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

// Granted returns the number of grants so far, and of those held now.
func (l *Table) Granted() (all int64, held int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.grants, len(l.holds)
}

// FirstGrant returns when the first grant began, or 0 if there was none.
func (l *Table) FirstGrant() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.first
}
