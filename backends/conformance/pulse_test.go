package conformance

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockquake/lockquake/lock"
)

// TestFailureOfASlowServiceProvesNothing: if a free lock takes a second, or is not answered at all, a check that
// fails meanwhile is excused with that reason. If the service answers, now or again, the failure is a finding. A
// check that passes or does not apply is unaffected.
func TestFailureOfASlowServiceProvesNothing(t *testing.T) {
	failed := errors.New("not granted within 5s")
	for name, c := range map[string]struct {
		takes time.Duration // the acquire, and the release
		later time.Duration // after which the check began
		err   error
		want  string
	}{
		"a quick service":       {100 * time.Millisecond, 0, failed, "not granted within 5s"},
		"a slow service":        {400 * time.Millisecond, 0, failed, "the service was too slow for a result: a free lock took 800ms during the check (not granted within 5s)"},
		"slow before the check": {400 * time.Millisecond, time.Second, failed, "not granted within 5s"},
		"a check that passes":   {400 * time.Millisecond, 0, nil, ""},
		"one that is left out":  {400 * time.Millisecond, 0, errSkip, errSkip.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &pulse{}
				began := time.Now().Add(c.later)
				if err := p.ask(t.Context(), &scripted{answers: []error{nil, nil}, takes: c.takes}, lock.Request{}); err != nil {
					t.Fatal(err)
				}
				time.Sleep(2 * time.Second)
				got := ""
				if err := p.excuse(began, c.err); err != nil {
					got = err.Error()
				}
				if got != c.want || errors.Is(p.excuse(began, c.err), errSlow) != strings.Contains(c.want, "too slow") {
					t.Errorf("%q, want %q", got, c.want)
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) { // the question is still pending
		p := &pulse{}
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _ = p.ask(ctx, &doubtful{}, lock.Request{}) }()
		began := time.Now()
		time.Sleep(time.Second)
		if err := p.excuse(began, failed); !errors.Is(err, errSlow) || !errors.Is(err, failed) {
			t.Errorf("no answer yet: %v", err)
		}
		cancel()
	})
}
