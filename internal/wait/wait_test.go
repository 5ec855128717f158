package wait

import (
	"testing"
	"time"
)

func TestWithin(t *testing.T) {
	for name, c := range map[string]struct {
		after int // calls of ok
		want  bool
	}{"at once": {1, true}, "later": {5, true}, "never": {1 << 40, false}} {
		t.Run(name, func(t *testing.T) {
			looks := 0
			if got := Within(50*time.Millisecond, func() bool { looks++; return looks >= c.after }); got != c.want {
				t.Errorf("%t after %d looks", got, looks)
			}
		})
	}
}
