// Package conformance checks every backend against the contract of package lock, on its real service: exclusion
// between users of one process and between processes, release only of one's own grant, expiry, renewal, token growth,
// and errors that claim certainty only where it exists. Every backend's own test runs it.
package conformance

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/lock"
)

// Options says what is tested.
type Options struct {
	Backend backends.Backend
	// Access reaches the running service; Backend, Lock, TTL and Run must be set. The TTL determines how long the
	// suite takes: some checks wait for it two or three times, in parallel.
	Access backends.Access
	// Voters is how many nodes a client asks for one operation, counting their answers; 0 if it asks one, whatever
	// the servers do behind that.
	Voters int
	// Again are the arguments with which this program, run again, gets to Child. None are needed if its TestMain is
	// Main.
	Again []string
	// Direct says why clients cannot connect through a proxy, for example because they learn addresses from the
	// service itself; "": they can. Checks that need a proxy then do not apply.
	Direct string
	// Foreign means that the lock is not one of lockquake's. Its requests are unknown, and Issued of a grant may be
	// when its first attempt began.
	Foreign bool

	network network // of the gates; nil: TCP on this machine
}

// majority is how many replies must be lost for the outcome of an operation to be unknown.
func (o Options) majority() int { return o.Voters/2 + 1 }

// Check checks one property.
type Check struct {
	Name string
	Doc  string // what is wrong with a lock that fails it
	// least is the shortest TTL of its grants, whatever Access says, so that none ends too early on a machine that
	// stalls.
	least time.Duration
	// needs returns why the check does not apply, or "".
	needs func(b *bench) string
	run   func(ctx context.Context, b *bench) error
}

// Checks returns all checks.
func Checks() []Check {
	var all []Check
	all = append(all, exclusionChecks()...)
	all = append(all, leaseChecks()...)
	all = append(all, releaseChecks()...)
	all = append(all, tokenChecks()...)
	all = append(all, networkChecks()...)
	return append(all, mannerChecks()...)
}

// limit bounds one check.
const limit = 2 * time.Minute

// The shortest TTLs of checks.
const (
	lasting = 10 * time.Second // where no grant may end by itself. No sound lock is waited for that long
	steady  = 2 * time.Second  // where grants are renewed a quarter or half of a TTL before their end
)

// errSkip means that a check does not apply.
var errSkip = errors.New("does not apply")

// teller logs what a reader of a test's log should know.
type teller func(format string, args ...any)

// one runs a check on its own bench.
func one(ctx context.Context, c Check, o Options, tell teller) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if !o.Foreign { // a foreign lock may not accept another TTL
		o.Access.TTL = max(o.Access.TTL, c.least)
	}
	b, err := newBench(ctx, o, c.Name)
	if err != nil {
		return err
	}
	defer b.close()
	b.tell = tell
	if c.needs != nil {
		if why := c.needs(b); why != "" {
			return fmt.Errorf("%w: %s", errSkip, why)
		}
	}
	return c.run(ctx, b)
}

// Run runs every check as a parallel subtest.
func Run(t *testing.T, o Options) {
	t.Helper()
	p := startPulse(t.Context(), o, t.Logf)
	for _, c := range Checks() {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			err := p.excuse(began, one(t.Context(), c, o, t.Logf))
			if errors.Is(err, errSkip) || errors.Is(err, errSlow) {
				t.Skip(err)
			}
			if err != nil {
				t.Errorf("%s: %v", c.Doc, err)
			}
		})
	}
}

// atOnce is how many checks judge runs in parallel. They mostly wait, but more would disturb each other's timing.
const atOnce = 8

// judge runs every check and returns the errors of those that failed, by name, including errSlow.
func judge(ctx context.Context, o Options, tell teller) map[string]error {
	var (
		mu     sync.Mutex
		group  sync.WaitGroup
		failed = map[string]error{}
	)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	p := startPulse(ctx, o, tell)
	slots := make(chan struct{}, atOnce)
	for _, c := range Checks() {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			began := time.Now()
			err := p.excuse(began, one(ctx, c, o, tell))
			switch {
			case errors.Is(err, errSkip):
				tell("%s: %v", c.Name, err)
			case err != nil:
				mu.Lock()
				defer mu.Unlock()
				failed[c.Name] = err
			}
		})
	}
	group.Wait()
	return failed
}

// RunWrong requires that a lock fails exactly the checks that it declares: see backends.Found.
func RunWrong(t *testing.T, o Options) {
	t.Helper()
	l, ok := o.Backend.Lock(o.Access.Lock)
	if !ok {
		t.Fatalf("backend %s has no lock %q", o.Backend.Name, o.Access.Lock)
	}
	fails := l.Found.Checks
	failed := judge(t.Context(), o, t.Logf)
	maps.DeleteFunc(failed, func(name string, err error) bool {
		if !errors.Is(err, errSlow) || slices.Contains(fails, name) {
			return false
		}
		t.Logf("%s: %v", name, err)
		return true
	})
	got, want := slices.Sorted(maps.Keys(failed)), []string{}
	for _, name := range fails {
		sometimes, chance := strings.CutSuffix(name, "?")
		if _, now := failed[sometimes]; now || !chance {
			want = append(want, sometimes)
		}
	}
	if !slices.Equal(got, slices.Sorted(slices.Values(want))) {
		t.Errorf("fails %q, should fail %q", got, fails)
		for _, name := range got {
			t.Logf("%s: %v", name, failed[name])
		}
	}
}

// RunAll runs the suite on every lock of a backend, in parallel, on one running service. Sound locks must pass it;
// wrong ones must fail exactly the checks that they declare.
func RunAll(t *testing.T, o Options) {
	t.Helper()
	for _, l := range o.Backend.Locks {
		t.Run(l.Name, func(t *testing.T) {
			t.Parallel()
			o := o
			o.Access.Lock = l.Name
			if l.Wrong != "" {
				RunWrong(t, o)
				return
			}
			Run(t, o)
		})
	}
}

// bench is what one check works with: its own lock name and a connection.
type bench struct {
	o     Options
	lock  backends.Lock
	ttl   time.Duration
	name  string
	conn  backends.Connection
	users int
	tell  teller // nil in a child process, which runs no check

	mu      sync.Mutex
	closers []func() error
}

// benches numbers the benches, so that lock names are unique within the process.
var benches atomic.Int64

func newBench(ctx context.Context, o Options, check string) (*bench, error) {
	l, ok := o.Backend.Lock(o.Access.Lock)
	if !ok {
		return nil, fmt.Errorf("backend %s has no lock %q", o.Backend.Name, o.Access.Lock)
	}
	b := &bench{o: o, lock: l, ttl: o.Access.TTL}
	b.name = fmt.Sprintf("%s-%s-%d", check, o.Access.Run, benches.Add(1))
	conn, err := l.Dial(ctx, o.Access)
	if err != nil {
		return nil, fmt.Errorf("dial: %w", err)
	}
	b.conn = conn
	b.later(conn.Close)
	return b, nil
}

// later registers a cleanup for close.
func (b *bench) later(f func() error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closers = append(b.closers, f)
}

// close runs all cleanups in reverse order. Their errors are not findings.
func (b *bench) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := len(b.closers) - 1; i >= 0; i-- {
		_ = b.closers[i]()
	}
}

// request returns a request for the bench's lock.
func (b *bench) request() lock.Request { return lock.Request{Lock: b.name, TTL: b.ttl} }

// recovery returns within what time after a holder's death the lock must be granted again.
func (b *bench) recovery() time.Duration { return b.lock.Bound(b.ttl, b.o.Access.Params) }

// user returns another user of the bench's process, on the shared connection.
func (b *bench) user(ctx context.Context) (lock.Locker, error) {
	return b.userOf(ctx, b.conn)
}

func (b *bench) userOf(ctx context.Context, c backends.Connection) (lock.Locker, error) {
	b.mu.Lock()
	b.users++
	n := b.users
	b.mu.Unlock()
	for doubts := 0; ; doubts++ {
		l, err := c.Locker(ctx, n)
		switch {
		case err == nil:
			b.later(l.Close)
			return l, nil
		case ctx.Err() != nil || !unsure(err) || doubts == mayBeUnsure: // a busy service may be too slow for a session
			return nil, fmt.Errorf("locker: %w", err)
		}
	}
}

// pair returns two users.
func (b *bench) pair(ctx context.Context) (first, second lock.Locker, err error) {
	if first, err = b.user(ctx); err != nil {
		return nil, nil, err
	}
	second, err = b.user(ctx)
	return first, second, err
}

// holder returns a user who has the lock, another one, and the grant.
func (b *bench) holder(ctx context.Context) (a, other lock.Locker, g lock.Grant, err error) {
	if a, other, err = b.pair(ctx); err != nil {
		return nil, nil, g, err
	}
	g, err = b.grantWithin(ctx, a, soon, "a free lock")
	return a, other, g, err
}

// crowd returns n users.
func (b *bench) crowd(ctx context.Context, n int) ([]lock.Locker, error) {
	users := make([]lock.Locker, n)
	var err error
	for i := range users {
		if users[i], err = b.user(ctx); err != nil {
			return nil, err
		}
	}
	return users, nil
}

// possession is a grant and the user who has it.
type possession struct {
	by    lock.Locker
	grant lock.Grant
}

// entitled reports whether the grant is valid now, by the latest end of its validity that its user knows. A loss does
// not count: it may be caused by the very mistake that a check looks for. A grant of unknown validity counts as
// valid.
func (p possession) entitled(ctx context.Context) bool {
	now, valid := time.Now(), p.grant.ValidUntil
	if w, ok := p.by.(lock.Watcher); ok {
		news, cancel := context.WithTimeout(ctx, brief/4)
		defer cancel()
		for c := range w.Watch(news, p.grant) {
			if !c.Lost {
				valid = c.ValidUntil
			}
		}
	}
	return valid == lock.Unknown() || valid.Covers(now)
}

// refusal has another user ask for the held lock. It returns an error if the lock was granted, or if the answer was
// not certain.
func (b *bench) refusal(ctx context.Context, who lock.Locker, held possession, when string) error {
	return b.refusalOf(ctx, who, b.request(), held, when)
}

// onlyWaits reports whether the lock has no TryAcquire. Giving up a wait takes another call, whose outcome may be
// unknown.
func (b *bench) onlyWaits() bool { return !b.lock.Offers.Try }

// mayBeUnsure is how often in a row the outcome of a call may be unknown. A busy machine breaks connections and
// passes deadlines, which says nothing about the lock.
const mayBeUnsure = 2

// unsure reports whether the outcome of a call is unknown, or the call was never made.
func unsure(err error) bool {
	return err != nil && (!lock.Certain(err) || errors.Is(err, lock.ErrNotSent))
}

// notHeld reports whether the service certainly no longer has the grant.
func notHeld(err error) bool { return errors.Is(err, lock.ErrNotHeld) || errors.Is(err, lock.ErrLost) }

// freed releases a grant. A release of unknown outcome is repeated. The first one may have been carried out, so the
// next may answer "not held". It may also do so once the grant is no longer valid.
func freed(ctx context.Context, who lock.Locker, g lock.Grant) error {
	for n := 0; ; n++ {
		err := who.Release(ctx, g)
		switch {
		case err == nil || notHeld(err) && (n > 0 || !possession{who, g}.entitled(ctx)):
			return nil
		case !unsure(err) || n == mayBeUnsure:
			return fmt.Errorf("release: %w", err)
		}
	}
}

// brief is the time limit of an attempt on a lock that can only wait. Each further attempt gets four times as long;
// the third gets far longer than a machine stalls.
const brief = 200 * time.Millisecond

// refusalOf makes an attempt, and repeats it while its outcome is unknown. A lock that never gives a certain "no"
// fails nevertheless. A repeated attempt proves something only if the holder is still entitled: its grant is kept
// alive in the background, or the first attempt left enough time. A second grant proves nothing once the first one is
// no longer valid.
func (b *bench) refusalOf(ctx context.Context, who lock.Locker, r lock.Request, held possession, when string) error {
	stands := b.lock.Offers.Renewal == "background"
	began, patience := time.Now(), brief
	if !stands {
		patience = b.ttl / 4
	}
	for n := 0; ; n++ {
		var err error
		var g lock.Grant
		if t, ok := who.(lock.TryAcquirer); ok && b.lock.Offers.Try {
			g, err = t.TryAcquire(ctx, r)
		} else {
			short, cancel := context.WithTimeout(ctx, patience)
			g, err = who.Acquire(short, r)
			cancel()
			patience *= 4
		}
		switch {
		case err == nil && !b.o.Foreign &&
			!held.entitled(ctx): // the validity of a foreign lock may count from its first attempt
			return fmt.Errorf("%w: %s: granted as %s, but the validity of %s has ended: the service was too slow for it",
				errSkip, when, g.ID, held.grant.ID)
		case err == nil:
			return fmt.Errorf("%s: granted a second time, as %s", when, g.ID)
		case errors.Is(err, lock.ErrContended):
			return nil
		case !unsure(err) || n == mayBeUnsure || !stands && time.Since(began) >= b.ttl/4:
			return fmt.Errorf("%s: an attempt on a held lock should be contended, but is: %w", when, err)
		}
		b.tell("%s: the outcome of attempt %d is unknown, it is repeated: %v", when, n+1, err)
	}
}

// grantWithin acquires for a user who must get the lock within d.
func (b *bench) grantWithin(ctx context.Context, who lock.Locker, d time.Duration, when string) (lock.Grant, error) {
	return grantOf(ctx, who.Acquire, b.request(), d, when)
}

// lastingWithin is grantWithin for a grant that must not end by itself while others try to get the lock. A request
// cannot set a session's TTL, but a session is kept alive.
func (b *bench) lastingWithin(ctx context.Context, who lock.Locker, d time.Duration, when string) (lock.Grant, error) {
	r := b.request()
	if b.lock.Offers.Renewal != "background" && !b.o.Foreign {
		r.TTL = max(r.TTL, lasting)
	}
	return grantOf(ctx, who.Acquire, r, d, when)
}

// attempt is a user's Acquire or TryAcquire.
type attempt func(context.Context, lock.Request) (lock.Grant, error)

// grantOf repeats an attempt whose outcome is unknown or that was not sent: the service did not answer a request or a
// connect in time, which says nothing about the lock. An attempt of unknown outcome may have left a grant behind; the
// next one is then refused until that grant ends.
func grantOf(ctx context.Context, ask attempt, r lock.Request, d time.Duration, when string) (lock.Grant, error) {
	bounded, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	for doubt := false; ; {
		g, err := ask(bounded, r)
		if err == nil {
			return g, nil
		}
		doubt = doubt || !lock.Certain(err) || errors.Is(err, lock.ErrLost) // its session ended while it waited
		if again := doubt || errors.Is(err, lock.ErrNotSent); !again || clock.Sleep(bounded, brief/4) != nil {
			return g, fmt.Errorf("%s: not granted within %s: %w", when, d, err)
		}
	}
}

// soon is within what time a free lock must be granted.
const soon = 5 * time.Second
