package backends

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockquake/lockquake/lock"
)

// TestPollGivesUp counts attempts that are certainly refused.
func TestPollGivesUp(t *testing.T) {
	r := Retry{Delay: time.Millisecond, Tries: 3}
	asked := 0
	var told atomic.Uint32
	_, err := r.Poll(lock.CountAttempts(t.Context(), &told), Random("run", 0), func(context.Context) (lock.Grant, error) {
		asked++
		return lock.Grant{}, lock.ErrContended
	})
	if asked != 3 || told.Load() != 3 || !errors.Is(err, lock.ErrContended) {
		t.Errorf("asked %d times and told of %d, then %v", asked, told.Load(), err)
	}
	if text := r.String(); !strings.Contains(text, "at most 3 times") {
		t.Errorf("the policy is called %q", text)
	}
	if err := (Retry{Delay: time.Millisecond, Tries: -1}).Check(); err == nil || !strings.Contains(err.Error(), "retry.tries") {
		t.Errorf("-1 tries: %v", err)
	}
}

// TestDelays compares the pauses of one acquire with the policy.
func TestDelays(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		retry Retry
		want  []time.Duration
		text  string
	}{
		{Retry{}, []time.Duration{0, 0, 0}, "poll without a pause"},
		{Retry{Delay: time.Millisecond}, []time.Duration{1e6, 1e6, 1e6}, "poll every 1ms +/- 0 %"},
		{Retry{Delay: time.Millisecond, Growth: 2}, []time.Duration{1e6, 2e6, 4e6}, "poll every 1ms +/- 0 %, each time 2 times as long"},
		{
			Retry{Delay: time.Millisecond, Growth: 3, Most: 5 * time.Millisecond},
			[]time.Duration{1e6, 3e6, 5e6},
			"poll every 1ms +/- 0 %, each time 3 times as long until it is 5ms",
		},
	} {
		if err := c.retry.Check(); err != nil {
			t.Errorf("%v: %v", c.retry, err)
		}
		next := c.retry.Delay
		for i, want := range c.want {
			if next != want {
				t.Errorf("%v: pause %d is %v, want %v", c.retry, i+1, next, want)
			}
			next = c.retry.after(next)
		}
		if got := c.retry.String(); got != c.text {
			t.Errorf("%q, want %q", got, c.text)
		}
	}
	for key, r := range map[string]Retry{
		"retry.growth": {Delay: time.Millisecond, Growth: 0.5},
		"retry.most":   {Delay: time.Millisecond, Growth: 2, Most: time.Microsecond},
		"retry.delay":  {Growth: 2},
	} {
		if err := r.Check(); err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("%+v: %v does not name %s", r, err, key)
		}
	}
}

// TestADeadlineWithinAnAttempt: the attempt's outcome stays open, and the error says what the earlier ones waited
// for.
func TestADeadlineWithinAnAttempt(t *testing.T) {
	t.Parallel()
	own := lock.Reason{Cause: lock.CauseNoMajority, Seen: 3, N: 5}
	for name, c := range map[string]struct {
		before error // of the attempts before the last
		over   bool  // the deadline ends the last one
		want   lock.Cause
	}{
		"held":                    {lock.ErrContended, true, lock.CauseWaitOver},
		"held, told by the line":  {lock.ErrContended, true, lock.CauseWaitOver},
		"held, with a reason":     {lock.Because(own, lock.ErrContended), true, own.Cause},
		"refused":                 {lock.ErrRefused, true, ""},
		"held, and then cut off":  {lock.ErrContended, false, ""},
		"refused, and no answer":  {lock.ErrRefused, false, ""},
		"never asked to the end":  {nil, true, ""},
		"nobody knows, no waiter": {nil, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			tries, end := 0, cancel
			if strings.HasSuffix(name, "by the line") { // the connection has the same deadline, and its timer fires first
				tardy := &tardy{Context: ctx, end: time.Now().Add(time.Hour)}
				ctx, end = tardy, func() { tardy.end = time.Now() }
			}
			_, err := Retry{}.Poll(ctx, Random("run", 0), func(context.Context) (lock.Grant, error) {
				if tries++; tries < 3 && c.before != nil {
					return lock.Grant{}, c.before
				}
				if c.over {
					end()
				}
				return lock.Grant{}, context.DeadlineExceeded
			})
			r, told := lock.ReasonOf(err)
			if lock.Certain(err) || !errors.Is(err, context.DeadlineExceeded) || told != (c.want != "") || r.Cause != c.want {
				t.Errorf("%v because %+v", err, r)
			}
			if r.Cause == lock.CauseWaitOver && r.N <= 0 {
				t.Errorf("waited for %d ns", r.N)
			}
		})
	}
}

// tardy is a context that has not yet noticed that its deadline has passed.
type tardy struct {
	context.Context
	end time.Time
}

func (c *tardy) Deadline() (time.Time, bool) { return c.end, true }
