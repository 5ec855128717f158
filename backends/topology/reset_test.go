package topology

import (
	"context"
	"errors"
	"testing"
	"time"
)

func TestUntil(t *testing.T) {
	t.Parallel()
	asked := 0
	third := func(context.Context) error {
		if asked++; asked < 3 {
			return errors.New("not yet")
		}
		return nil
	}
	if err := Until(t.Context(), time.Minute, third); err != nil || asked != 3 {
		t.Errorf("asked %d times, %v", asked, err)
	}
	never := errors.New("one key is left")
	if err := Until(t.Context(), time.Millisecond, func(context.Context) error { return never }); !errors.Is(err, never) {
		t.Errorf("without patience: %v", err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Until(over, time.Minute, func(context.Context) error { return never }); !errors.Is(err, never) {
		t.Errorf("with a context that is over: %v", err)
	}
}
