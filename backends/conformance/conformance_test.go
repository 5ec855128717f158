package conformance

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/lock"
)

// scripted answers one attempt after the other as it is told to; nil grants.
type scripted struct{ answers []error }

func (s *scripted) Acquire(context.Context, lock.Request) (lock.Grant, error) {
	err := s.answers[0]
	s.answers = s.answers[1:]
	return lock.Grant{ID: "g"}, err
}

func (s *scripted) TryAcquire(ctx context.Context, r lock.Request) (lock.Grant, error) {
	return s.Acquire(ctx, r)
}

func (*scripted) Release(context.Context, lock.Grant) error { return nil }
func (*scripted) Close() error                              { return nil }

// TestForeignLocksHaveNoProxy has a lock that no proxy can be put before, and one whose requests carry no name: the checks do not apply.
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

// TestRefusal asks of whom the suite takes "nobody knows" for an answer, how often, and that it tells of it.
func TestRefusal(t *testing.T) {
	doubt := errors.New("deadline exceeded")
	waits := backends.Offers{Blocking: true, Renewal: "background"}
	for name, c := range map[string]struct {
		offers  backends.Offers
		answers []error // all of them are to be heard
		want    string  // in the error; "" for none
		told    int
	}{
		"contended":               {waits, []error{lock.ErrContended}, "", 0},
		"granted":                 {waits, []error{nil}, "granted a second time", 0},
		"in doubt twice":          {waits, []error{doubt, doubt, lock.ErrContended}, "", 2},
		"always in doubt":         {waits, []error{doubt, doubt, doubt}, "should be contended", 2},
		"granted after a doubt":   {waits, []error{doubt, nil}, "granted a second time", 1},
		"certain of another":      {waits, []error{lock.ErrLost}, "should be contended", 0},
		"in doubt after a try":    {backends.Offers{Try: true, Renewal: "background"}, []error{doubt}, "should be contended", 0},
		"nobody keeps the holder": {backends.Offers{Blocking: true, Renewal: "call"}, []error{doubt}, "should be contended", 0},
	} {
		t.Run(name, func(t *testing.T) {
			told := 0
			b := &bench{lock: backends.Lock{Offers: c.offers}, ttl: time.Second, tell: func(string, ...any) { told++ }}
			who := &scripted{answers: c.answers}
			err := b.refusal(t.Context(), who, "now")
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("says %v, should say %q", err, c.want)
			}
			if told != c.told || len(who.answers) != 0 {
				t.Errorf("told of %d doubts, %d answers not heard; should tell of %d", told, len(who.answers), c.told)
			}
		})
	}
}
