package conformance

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sort"
	"sync"
	"time"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/lock"
)

func exclusionChecks() []Check {
	return []Check{
		{
			Name: "exclusion-pair", Doc: "two users of one process hold the lock at once",
			least: lasting, run: exclusionPair,
		},
		{
			Name: "exclusion-crowd", Doc: "users of one process that compete for the lock overlap",
			run: exclusionCrowd,
		},
		{
			Name: "exclusion-processes", Doc: "users of two processes that compete for the lock overlap",
			needs: needsProcesses, run: exclusionProcesses,
		},
		{
			Name: "order", Doc: "waiters are not served in the order of asking", least: lasting,
			needs: offers(func(o backends.Offers) bool { return o.Fair }, "the lock does not promise an order"),
			run:   order,
		},
		{
			Name: "shared", Doc: "a shared grant excludes other sharers, or admits exclusive users",
			least: lasting,
			needs: offers(func(o backends.Offers) bool { return o.Shared }, "the lock has no shared mode"),
			run:   shared,
		},
		{
			Name: "reentry", Doc: "a lock taken twice by its holder is free after one release, or is not free after two",
			least: lasting,
			needs: offers(func(o backends.Offers) bool { return o.Reenters }, "the lock is not re-entrant"),
			run:   reentry,
		},
		{
			Name: "permits", Doc: "a lock of three permits excludes the third user, or admits a fourth",
			least: lasting,
			needs: offers(func(o backends.Offers) bool { return o.Permits }, "the lock is held by one user at a time"),
			run:   permits,
		},
	}
}

func exclusionPair(ctx context.Context, b *bench) error {
	first, second, g, err := b.holder(ctx)
	if err != nil {
		return err
	}
	if err := b.refusal(ctx, second, possession{first, g}, "while the first user holds it"); err != nil {
		return err
	}
	if err := freed(ctx, first, g); err != nil {
		return err
	}
	_, err = b.grantWithin(ctx, second, soon, "a released lock")
	return err
}

// hold is the certain part of one hold, in ns of CLOCK_MONOTONIC.
type hold struct {
	Start int64 `json:"start"` // the grant was in hand
	End   int64 `json:"end"`   // the release began, or the validity ended
}

// overlap returns an error if two holds overlap. Each hold is cut at its own validity, so an overlap is the lock's
// fault.
func overlap(holds []hold) error {
	sort.Slice(holds, func(i, j int) bool { return holds[i].Start < holds[j].Start })
	var n int
	var first error
	end := int64(math.MinInt64)
	for _, h := range holds {
		if h.Start < end {
			n++
			if first == nil {
				first = fmt.Errorf("a hold begins %s before another one ends", time.Duration(end-h.Start))
			}
		}
		end = max(end, h.End)
	}
	if first != nil {
		return fmt.Errorf("%d of %d holds overlap: %w", n, len(holds), first)
	}
	return nil
}

// held returns the certain part of a hold.
func held(start int64, g lock.Grant) hold {
	h := hold{Start: start, End: clock.Now()}
	if v, ok := g.ValidUntil.Time(); ok {
		h.End = min(h.End, clock.Of(v))
	} else if !g.ValidUntil.IsEndless() {
		h.End = start
	}
	return h
}

// fight has users acquire and release one lock until enough returns true. enough is called after each grant with all
// holds so far, the newest last. fight returns the holds.
func fight(ctx context.Context, users []lock.Locker, r lock.Request, enough func(all []hold) bool) ([]hold, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var (
		mu    sync.Mutex
		group sync.WaitGroup
		all   []hold
		errs  []error
	)
	for _, u := range users {
		group.Go(func() {
			err := cycle(ctx, u, r, func(h hold) bool {
				mu.Lock()
				defer mu.Unlock()
				all = append(all, h)
				return !enough(all)
			})
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, err)
		})
	}
	group.Wait()
	return all, errors.Join(errs...)
}

// cycle acquires and releases until ctx ends, or until more, called after each grant, returns false.
func cycle(ctx context.Context, u lock.Locker, r lock.Request, more func(hold) bool) error {
	doubts := 0
	for goOn := true; goOn && ctx.Err() == nil; {
		g, err := u.Acquire(ctx, r)
		if err != nil {
			// a connection's deadline passes before the context's
			if end, _ := ctx.Deadline(); !time.Now().Before(end) {
				break
			}
			if doubts++; unsure(err) && doubts <= mayBeUnsure {
				continue
			}
			return fmt.Errorf("acquire on a healthy service: %w", err)
		}
		doubts = 0
		start := clock.Now()
		time.Sleep(2 * time.Millisecond)
		goOn = more(held(start, g))
		// The release may outlive the fight: the lock's expiry bounds it, so it has its own time limit.
		free, cancel := context.WithTimeout(context.WithoutCancel(ctx), soon)
		err = freed(free, u, g)
		cancel()
		if err != nil && !errors.Is(err, lock.ErrNotHeld) {
			return fmt.Errorf("on a healthy service: %w", err)
		}
	}
	return nil
}

// fightTime is how long users fight; leastGrants is how many grants they must get.
const (
	fightTime   = 600 * time.Millisecond
	leastGrants = 10
	patience    = time.Minute // ends a fight that does not get there
)

func exclusionCrowd(ctx context.Context, b *bench) error {
	users, err := b.crowd(ctx, 8)
	if err != nil {
		return err
	}
	over := time.Now().Add(fightTime)
	holds, err := fight(ctx, users, b.request(), func(all []hold) bool {
		return len(all) >= leastGrants &&
			time.Now().After(over)
	})
	if err != nil {
		return err
	}
	if len(holds) < leastGrants {
		return fmt.Errorf("only %d grants in %s: too few to judge", len(holds), patience)
	}
	return overlap(holds)
}

// queueing is the pause between two waiters: no lock reports when a waiter's request has arrived. It is twice as long
// as a machine stalls.
const queueing = 400 * time.Millisecond

func order(ctx context.Context, b *bench) error {
	holder, err := b.user(ctx)
	if err != nil {
		return err
	}
	g, err := b.grantWithin(ctx, holder, soon, "a free lock")
	if err != nil {
		return err
	}
	const waiters = 3
	served := make(chan int, waiters)
	errs := make(chan error, waiters)
	for i := range waiters {
		u, err := b.user(ctx)
		if err != nil {
			return err
		}
		asks := make(chan struct{})
		go func() {
			close(asks)
			g, err := b.grantWithin(ctx, u, 2*soon, "a waiter")
			if err == nil {
				served <- i
				err = freed(ctx, u, g)
			}
			errs <- err
		}()
		<-asks
		clock.Sleep(ctx, queueing)
	}
	if err := freed(ctx, holder, g); err != nil {
		return err
	}
	for range waiters {
		if err := <-errs; err != nil {
			return err
		}
	}
	for want := range waiters {
		if got := <-served; got != want {
			return fmt.Errorf("waiter %d was served before %d, which had asked first", got, want)
		}
	}
	return nil
}

// shared has two users share the lock. A third one who wants it exclusively must wait for both, and while it holds,
// no one may share.
func shared(ctx context.Context, b *bench) error {
	users, err := b.crowd(ctx, 3)
	if err != nil {
		return err
	}
	first, third := users[0], users[2]
	sharing := b.request()
	sharing.Mode = lock.Shared
	var grants []lock.Grant
	for _, u := range users[:2] {
		bounded, cancel := context.WithTimeout(ctx, soon)
		g, err := u.Acquire(bounded, sharing)
		cancel()
		if err != nil {
			return fmt.Errorf("number %d of two sharers: %w", len(grants)+1, err)
		}
		if g.Mode != lock.Shared {
			return fmt.Errorf("a shared grant has mode %s", g.Mode)
		}
		grants = append(grants, g)
	}
	for i, u := range users[:2] {
		if err := b.refusal(ctx, third, possession{u, grants[i]},
			fmt.Sprintf("while %d users share it", len(grants)-i)); err != nil {
			return err
		}
		if err := freed(ctx, u, grants[i]); err != nil {
			return err
		}
	}
	g, err := b.grantWithin(ctx, third, soon, "a lock without sharers")
	if err != nil {
		return err
	}
	if b.lock.Offers.Token != backends.TokenNone && (g.Token <= grants[0].Token || g.Token <= grants[1].Token) {
		return fmt.Errorf("token %d after the shared grants' %d and %d", g.Token, grants[0].Token, grants[1].Token)
	}
	return b.refusalOf(ctx, first, sharing, possession{third, g}, "while another user holds it exclusively")
}

// reentry has a user take the lock twice; another user must wait until both are given back.
func reentry(ctx context.Context, b *bench) error {
	first, second, g, err := b.holder(ctx)
	if err != nil {
		return err
	}
	again, err := b.grantWithin(ctx, first, soon, "a lock that it holds")
	if err != nil {
		return err
	}
	if b.lock.Offers.Token != backends.TokenNone && again.Token < g.Token {
		return fmt.Errorf("token %d of the lock taken once more, after %d", again.Token, g.Token)
	}
	if err := b.refusal(ctx, second, possession{first, again}, "while the first user holds it twice"); err != nil {
		return err
	}
	if err := freed(ctx, first, again); err != nil {
		return err
	}
	if err := b.refusal(ctx, second, possession{first, g}, "while the first user still holds it once"); err != nil {
		return err
	}
	if err := freed(ctx, first, g); err != nil {
		return err
	}
	_, err = b.grantWithin(ctx, second, soon, "a lock released as often as it was taken")
	return err
}

// permits has three users hold the lock; a fourth one must wait until one of them gives it back.
func permits(ctx context.Context, b *bench) error {
	const n = 3
	a := b.o.Access
	a.Permits = n
	conn, err := b.lock.Dial(ctx, a)
	if err != nil {
		return fmt.Errorf("dial: %w", err)
	}
	b.later(conn.Close)
	var users []lock.Locker
	var grants []lock.Grant
	for i := range n + 1 {
		u, err := b.userOf(ctx, conn)
		if err != nil {
			return err
		}
		users = append(users, u)
		if i == n {
			break
		}
		g, err := b.grantWithin(ctx, u, soon, fmt.Sprintf("a lock of %d permits that %d users hold", n, i))
		if err != nil {
			return err
		}
		grants = append(grants, g)
	}
	if err := b.refusal(ctx, users[n], possession{users[0], grants[0]}, "while all permits are held"); err != nil {
		return err
	}
	if err := freed(ctx, users[0], grants[0]); err != nil {
		return err
	}
	g, err := b.grantWithin(ctx, users[n], soon, "a permit that was released")
	if err != nil {
		return err
	}
	return b.refusal(ctx, users[0], possession{users[n], g}, "while all permits are held again")
}
