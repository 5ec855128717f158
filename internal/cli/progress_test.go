package cli

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/lockquake/lockquake/internal/engine"
)

func TestPlainProgressSpeaksOfNewsOnly(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	p := NewProgress(&b, false)
	p.Update(engine.Progress{Phase: "up"})
	p.Update(engine.Progress{Phase: "load", Total: 10 * time.Second})
	for i := range 50 {
		p.Update(engine.Progress{Phase: "load", Total: 10 * time.Second, Elapsed: time.Duration(i) * time.Millisecond, Grants: int64(i)})
	}
	p.Update(engine.Progress{Phase: "load", Total: 10 * time.Second, Elapsed: 5 * time.Second, Grants: 70, Faults: 1, Text: "pause on client-2"})
	p.Finish()
	p.Update(engine.Progress{Phase: "up"})
	p.Close()
	want := []string{"up", "load", "load 5s of 10s, 70 grants, 1 fault: pause on client-2", "up"}
	if got := strings.Split(strings.TrimSpace(b.String()), "\n"); strings.Join(got, "|") != strings.Join(want, "|") {
		t.Errorf("lines are %q, should be %q", got, want)
	}
}
