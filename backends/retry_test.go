package backends

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lockquake/lockquake/lock"
)

// TestPollGivesUp counts attempts that are certainly refused.
func TestPollGivesUp(t *testing.T) {
	r := Retry{Delay: time.Millisecond, Tries: 3}
	asked := 0
	_, err := r.Poll(t.Context(), Random("run", 0), func(context.Context) (lock.Grant, error) {
		asked++
		return lock.Grant{}, lock.ErrContended
	})
	if asked != 3 || !errors.Is(err, lock.ErrContended) {
		t.Errorf("asked %d times, then %v", asked, err)
	}
	if text := r.String(); !strings.Contains(text, "at most 3 times") {
		t.Errorf("the policy is called %q", text)
	}
	if err := (Retry{Delay: time.Millisecond, Tries: -1}).Check(); err == nil || !strings.Contains(err.Error(), "retry.tries") {
		t.Errorf("-1 tries: %v", err)
	}
}
