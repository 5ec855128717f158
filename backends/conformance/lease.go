package conformance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/lock"
)

func leaseChecks() []Check {
	renews := offers(func(o backends.Offers) bool { return o.Renewal != "none" }, "grants cannot be renewed")
	tells := offers(func(o backends.Offers) bool { return o.LossSignal }, "losses are not reported")
	return []Check{
		{Name: "validity", Doc: "a fresh grant promises more than the service keeps", run: validity},
		{
			Name: "validity-late", Doc: "the validity is not counted from the send time: a late answer makes it end later",
			needs: offers(func(o backends.Offers) bool { return o.Expires }, "grants have no end"),
			run:   countedFromSending,
		},
		{
			Name: "expiry", Doc: "a silent holder's lock is not granted again in time, or is too early", needs: expires,
			run: expired,
		},
		{
			Name: "expiry-process", Doc: "a killed process's lock is not granted again in time, or is too early",
			needs: func(b *bench) string { return needsProcesses(b) + expires(b) }, run: expiryProcess,
		},
		{
			Name: "renewal", Doc: "a renewed grant does not outlive its first TTL", least: steady, needs: renews,
			run: renewal,
		},
		{Name: "loss", Doc: "the loss of a grant is not reported, or the user is stuck after it", needs: tells, run: loss},
	}
}

// expires is the condition that grants expire. It does not exempt a wrong lock: if that is its mistake, the check
// must find it.
func expires(b *bench) string {
	if b.lock.Wrong != "" || b.lock.Offers.Expires {
		return ""
	}
	return "grants do not expire"
}

// offers returns the condition that a lock offers something; why says what is missing.
func offers(has func(backends.Offers) bool, why string) func(*bench) string {
	return func(b *bench) string {
		if has(b.lock.Offers) {
			return ""
		}
		return why
	}
}

func validity(ctx context.Context, b *bench) error {
	u, err := b.user(ctx)
	if err != nil {
		return err
	}
	before := time.Now()
	g, err := b.grantWithin(ctx, u, soon, "a free lock")
	if err != nil {
		return err
	}
	after := time.Now()
	switch end, ok := g.ValidUntil.Time(); {
	case g.Issued.Before(before) || g.Issued.After(after):
		return fmt.Errorf("issued %s before the call began or after it ended", before.Sub(g.Issued))
	case g.Lock != b.name || g.ID == "":
		return fmt.Errorf("grant names lock %q and id %q", g.Lock, g.ID)
	case !ok && b.lock.Offers.Expires:
		return errors.New("an expiring grant has no end")
	case ok && end.After(after.Add(b.ttl)):
		return fmt.Errorf("valid for %s, longer than the TTL %s", end.Sub(after), b.ttl)
	case ok && !end.After(after):
		return fmt.Errorf("a fresh grant ended %s ago", after.Sub(end))
	}
	return nil
}

// known tracks the latest end of validity of a grant.
func known(ctx context.Context, u lock.Locker, g lock.Grant) (latest func() time.Time, stop func()) {
	end, _ := g.ValidUntil.Time()
	w, ok := u.(lock.Watcher)
	if !ok {
		return func() time.Time { return end }, func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for c := range w.Watch(ctx, g) {
			if t, ok := c.ValidUntil.Time(); ok && !c.Lost {
				end = t
			}
		}
	}()
	stop = func() { cancel(); <-done }
	return func() time.Time { stop(); return end }, stop
}

// taken checks that a grant did not come before the validity of the former one ended. ok is when the grant was in
// hand.
func taken(end, ok time.Time) error {
	if ok.Before(end) {
		return fmt.Errorf("granted %s before the former holder's validity ended", end.Sub(ok))
	}
	return nil
}

func expired(ctx context.Context, b *bench) error {
	a, g, other, err := b.distantHolder(ctx)
	if err != nil {
		return err
	}
	latest, stop := known(ctx, a.Locker, g)
	defer stop()
	a.silence()
	_, err = b.grantWithin(ctx, other, b.recovery(), "after the holder became silent")
	ok := time.Now()
	if err != nil {
		return err
	}
	return taken(latest(), ok)
}

func expiryProcess(ctx context.Context, b *bench) error {
	other, err := b.user(ctx)
	if err != nil {
		return err
	}
	p, err := b.o.spawn(ctx, job{Access: b.o.Access, Name: b.name})
	if err != nil {
		return err
	}
	first, err := p.next()
	if err != nil {
		p.kill()
		return err
	}
	end := first.Valid
	clock.Sleep(ctx, b.ttl/2)
	for _, r := range p.kill() {
		end = max(end, r.Valid)
	}
	_, err = b.grantWithin(ctx, other, b.recovery(), "after the holder's process was killed")
	ok := time.Now()
	if err != nil {
		return err
	}
	return taken(clock.Time(end), ok)
}

// orNil makes a nil error printable.
func orNil(err error) error {
	if err == nil {
		return errors.New("success")
	}
	return err
}

func loss(ctx context.Context, b *bench) error {
	a, g, _, err := b.distantHolder(ctx)
	if err != nil {
		return err
	}
	w, ok := a.Locker.(lock.Watcher)
	if !ok {
		return errors.New("no Watcher, although the lock declares it")
	}
	watch, cancel := context.WithTimeout(ctx, b.recovery())
	defer cancel()
	changes := w.Watch(watch, g)
	back := a.silenceOrCut(b.lock)
	lost := false
	for c := range changes {
		lost = lost || c.Lost
	}
	if !lost {
		return fmt.Errorf("no report of the loss within %s", b.recovery())
	}
	back()
	again, err := b.grantWithin(ctx, a, b.recovery(), "the same user after its loss")
	if err != nil {
		return err
	}
	if again.ID == g.ID {
		return errors.New("the new grant has the lost one's id")
	}
	return nil
}
