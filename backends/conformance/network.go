package conformance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/lock"
)

func networkChecks() []Check {
	return []Check{
		{
			Name: "errors-acquire", Doc: "an acquire whose reply was lost is reported as certain, or blocks the lock",
			needs: remote, run: errorsAcquire,
		},
		{
			Name: "errors-release", Doc: "a release whose reply was lost is reported as certain, or blocks the lock",
			needs: remote, run: errorsRelease,
		},
		{
			Name: "errors-silence", Doc: "a release without any answer is reported as certain, does not return, or blocks the lock",
			needs: remote, run: errorsSilence,
		},
		{
			Name: "errors-refused", Doc: "a user without connection does not get an error in time, or is stuck after it",
			needs: remote, run: errorsRefused,
		},
	}
}

// remote is the condition that users reach the service over a network.
func remote(b *bench) string {
	if b.o.Backend.InProcess {
		return "there is no network"
	}
	return ""
}

// unknown checks that an unknown outcome is reported as such.
func unknown(err error) error {
	if err == nil {
		return errors.New("success, though no reply came")
	}
	if lock.Certain(err) {
		return fmt.Errorf("reported as certain, although the service may have done it: %w", err)
	}
	return nil
}

// errNameless means that a check does not apply.
var errNameless = fmt.Errorf("%w: no request has the name of the lock, by which the gate recognises it", errSkip)

// cutEnough returns an error unless enough replies were cut off to make the outcome unknown.
func (o Options) cutEnough(n int) error {
	switch {
	case n == o.majority():
		return nil
	case n == 0 && o.Foreign:
		return errNameless
	}
	return fmt.Errorf("the gate dropped %d replies; the check needs %d", n, o.majority())
}

func errorsAcquire(ctx context.Context, b *bench) error {
	a, err := b.distant(ctx)
	if err != nil {
		return err
	}
	other, err := b.user(ctx)
	if err != nil {
		return err
	}
	a.gate.cutReplies(b.o.majority())
	bounded, cancel := context.WithTimeout(ctx, soon)
	defer cancel()
	g, err := a.Acquire(bounded, b.request()) // the only attempt: its error is checked
	at, n := a.gate.cut()
	if bad := b.o.cutEnough(n); bad != nil {
		return bad
	}
	if err == nil && (b.o.Foreign || g.Issued.After(at)) { // a library that retried by itself and was answered
		if err := freed(ctx, a, g); err != nil {
			return err
		}
	} else if err := unknown(err); err != nil {
		return err
	}
	_, err = b.grantWithin(ctx, other, b.recovery(), "after an acquire of unknown outcome")
	return err
}

func errorsRelease(ctx context.Context, b *bench) error {
	a, g, other, err := b.distantHolder(ctx)
	if err != nil {
		return err
	}
	a.gate.cutReplies(b.o.majority())
	bounded, cancel := context.WithTimeout(ctx, soon)
	defer cancel()
	err = a.Release(bounded, g)
	_, n := a.gate.cut()
	if bad := b.o.cutEnough(n); bad != nil {
		return bad
	}
	if err := unknown(err); err != nil {
		return err
	}
	_, err = b.grantWithin(ctx, other, b.recovery(), "after a release of unknown outcome")
	return err
}

func errorsSilence(ctx context.Context, b *bench) error {
	a, g, other, err := b.distantHolder(ctx)
	if err != nil {
		return err
	}
	before := a.gate.requests()
	a.silence()
	const patience = 300 * time.Millisecond // where a stall sends nothing until it is over, an error may say so
	bounded, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	released := make(chan error, 1)
	go func() { released <- a.Release(bounded, g) }()
	select {
	case err = <-released:
	case <-time.After(patience + soon):
		return fmt.Errorf("the release has not returned after %s; its deadline was %s", patience+soon, patience)
	}
	// for example because it connects for each call: it may then say that nothing was done
	unsent := before > 0 && a.gate.requests() == before
	if !unsent || err == nil {
		if err := unknown(err); err != nil {
			return err
		}
	}
	// The link comes back at once: a keep-alive that was not stopped would now hold the lock for ever.
	a.speak()
	_, err = b.grantWithin(ctx, other, b.recovery(), "after a release without any answer")
	return err
}

func errorsRefused(ctx context.Context, b *bench) error {
	a, err := b.distant(ctx)
	if err != nil {
		return err
	}
	a.gate.setRefuse(true)
	const patience = time.Second
	bounded, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	asked := time.Now()
	_, err = a.Acquire(bounded, b.request())
	if took := time.Since(asked); took > patience+soon {
		return fmt.Errorf("the acquire returned after %s; its deadline was %s", took, patience)
	}
	if err == nil {
		return errors.New("granted without a connection")
	}
	a.gate.setRefuse(false)
	// A failed attempt may leave a request behind that ends with the TTL; until then the user's own attempts fail.
	deadline := time.Now().Add(b.recovery() + soon)
	for {
		_, err := b.grantWithin(ctx, a, time.Until(deadline), "after the connection came back")
		if err == nil || time.Now().After(deadline) {
			return err
		}
		clock.Sleep(ctx, 50*time.Millisecond)
	}
}
