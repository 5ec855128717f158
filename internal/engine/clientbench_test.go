package engine

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/lockquake/lockquake/internal/wire"
)

// Each program is asked once, without a server. What it does not announce is known before anything else starts.
func TestHellosOfPrograms(t *testing.T) {
	text := withProgram(t, "run: [lockquake, node, one], beside: [{dir: /, run: [lockquake, node, two]}]", "")
	text = strings.Replace(text, "clients: 1", "clients: 2", 1) + "steps:\n  - {do: close, user: A}\n"
	synctest.Test(t, func(t *testing.T) {
		s := &testbed{t: t, takes: []string{wire.DoClose}}
		o := s.options(text)
		hellos, err := Hellos(t.Context(), o)
		if err != nil || len(hellos) != 2 || hellos[1].Process != "fake" || len(s.fakes) > 0 {
			t.Fatalf("%v, %d hellos, servers %v", err, len(hellos), s.fakes)
		}
		p, err := Check(o)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(Lacks(p, hellos), Lacks(p, nil)); err != nil {
			t.Error(err)
		}
		hellos[0].Orders = nil
		if err := Lacks(p, hellos); err == nil || !strings.Contains(err.Error(), "client-3: ") || !strings.Contains(err.Error(), "fake takes no order close") {
			t.Errorf("A is the third client, which is of the first program: %v", err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		if hellos, err := Hellos(t.Context(), (&testbed{t: t, mute: true}).options(text)); err == nil || !strings.Contains(err.Error(), "client-1: no hello: not within 30s") {
			t.Errorf("%v, %d hellos of programs that say none", err, len(hellos))
		}
	})
	if hellos, err := Hellos(t.Context(), (&testbed{t: t}).options(scheduled())); err != nil || hellos != nil {
		t.Errorf("%v, %d hellos of lockquake's own client", err, len(hellos))
	}
}
