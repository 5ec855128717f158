package conformance

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/lock"
)

// scripted answers calls from a list; nil is a success.
type scripted struct {
	answers []error
	takes   time.Duration // of each call
}

func (s *scripted) next() error {
	time.Sleep(s.takes)
	err := s.answers[0]
	s.answers = s.answers[1:]
	return err
}

func (s *scripted) Acquire(context.Context, lock.Request) (lock.Grant, error) {
	return lock.Grant{ID: "g"}, s.next()
}

func (s *scripted) TryAcquire(ctx context.Context, r lock.Request) (lock.Grant, error) {
	return s.Acquire(ctx, r)
}

func (s *scripted) Release(context.Context, lock.Grant) error { return s.next() }
func (*scripted) Close() error                                { return nil }

// TestForeignLocksHaveNoProxy uses a lock that cannot be reached through a proxy, and one whose requests carry no
// name: the checks do not apply.
func TestForeignLocksHaveNoProxy(t *testing.T) {
	b := &bench{o: Options{Direct: "they learn addresses"}}
	if _, err := b.distant(t.Context()); !errors.Is(err, errSkip) || !strings.Contains(err.Error(), "they learn addresses") {
		t.Errorf("a lock without a proxy: %v", err)
	}
	for name, c := range map[string]struct {
		o    Options
		cut  int
		skip bool
		ok   bool
	}{
		"enough": {Options{}, 1, false, true}, "enough of five": {Options{Voters: 5}, 3, false, true}, "too few of five": {Options{Voters: 5, Foreign: true}, 2, false, false},
		"none": {Options{}, 0, false, false}, "none, and not ours": {Options{Foreign: true}, 0, true, false},
	} {
		err := c.o.cutEnough(c.cut)
		if (err == nil) != c.ok || errors.Is(err, errSkip) != c.skip {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestRefusal requires a certain "no" to attempts on a held lock. An unknown outcome is reported, and the attempt is
// repeated while the holder is entitled.
func TestRefusal(t *testing.T) {
	doubt := errors.New("connection closed")
	unknown, soonOver := lock.Unknown(), lock.Until(time.Date(2000, 1, 1, 0, 0, 1, 0, time.UTC)) // a second after synctest begins
	kept, lease := backends.Offers{Blocking: true, Try: true, Renewal: "background"}, backends.Offers{Try: true, Renewal: "call"}
	for name, c := range map[string]struct {
		offers  backends.Offers
		takes   time.Duration
		valid   lock.Validity
		answers []error // all of them must be used
		want    string  // in the error; "" for none
		told    int
	}{
		"contended":               {kept, 0, unknown, []error{lock.ErrContended}, "", 0},
		"granted":                 {kept, 0, unknown, []error{nil}, "granted a second time", 0},
		"in doubt twice":          {kept, time.Second, unknown, []error{doubt, doubt, lock.ErrContended}, "", 2},
		"always in doubt":         {kept, 0, unknown, []error{doubt, doubt, doubt}, "should be contended", 2},
		"granted after a doubt":   {kept, 0, unknown, []error{doubt, nil}, "granted a second time", 1},
		"certain of another":      {kept, 0, unknown, []error{lock.ErrLost}, "should be contended", 0},
		"only waits":              {backends.Offers{Blocking: true, Renewal: "background"}, 0, unknown, []error{doubt, lock.ErrContended}, "", 1},
		"a lease, in doubt early": {lease, 0, unknown, []error{doubt, lock.ErrContended}, "", 1},
		"a lease, in doubt late":  {lease, time.Second / 4, unknown, []error{doubt}, "should be contended", 0},
		"granted, both entitled":  {kept, 0, lock.Endless(), []error{nil}, "granted a second time", 0},
		"granted after the first": {kept, time.Minute, soonOver, []error{nil}, "does not apply", 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				told := 0
				b := &bench{lock: backends.Lock{Offers: c.offers}, ttl: time.Second, tell: func(string, ...any) { told++ }}
				who := &scripted{answers: c.answers, takes: c.takes}
				err := b.refusal(t.Context(), who, possession{grant: lock.Grant{ValidUntil: c.valid}}, "now")
				if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
					t.Errorf("says %v, should say %q", err, c.want)
				}
				if told != c.told || len(who.answers) != 0 {
					t.Errorf("told of %d doubts, %d answers not heard; should tell of %d", told, len(who.answers), c.told)
				}
			})
		})
	}
}

// TestFreed requires success of a release, or "not held" once an earlier release of unknown outcome may have been
// carried out.
func TestFreed(t *testing.T) {
	doubt, unknown := errors.New("connection closed"), lock.Unknown()
	for name, c := range map[string]struct {
		valid   lock.Validity
		answers []error // all of them must be used
		good    bool
	}{
		"released":               {unknown, []error{nil}, true},
		"not held":               {unknown, []error{lock.ErrNotHeld}, false},
		"not held, valid":        {lock.Endless(), []error{lock.ErrNotHeld}, false},
		"not held, over":         {lock.Until(time.Now()), []error{lock.ErrNotHeld}, true},
		"in doubt, then done":    {unknown, []error{doubt, nil}, true},
		"in doubt, was done":     {unknown, []error{doubt, lock.ErrNotHeld}, true},
		"in doubt, session over": {unknown, []error{doubt, doubt, lock.ErrLost}, true},
		"always in doubt":        {unknown, []error{doubt, doubt, doubt}, false},
		"refused after a doubt":  {unknown, []error{doubt, lock.ErrRefused}, false},
	} {
		t.Run(name, func(t *testing.T) {
			who := &scripted{answers: c.answers}
			if err := freed(t.Context(), who, lock.Grant{ValidUntil: c.valid}); (err == nil) != c.good || len(who.answers) != 0 {
				t.Errorf("says %v, %d answers not heard", err, len(who.answers))
			}
		})
	}
}
