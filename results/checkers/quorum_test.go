package checkers

import (
	"testing"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
)

// replicatedScript is a paused holder whose late write reaches one replica of three. Each replica has its own final
// read; the one of the cut-off replica differs.
const replicatedScript = `
run resource=epoch token=service replicas=3 increments
0 A acquire invoke
10 A acquire ok valid=110 issued=1 token=5
20 B acquire invoke
120 B acquire ok valid=1220 issued=119 token=7
124 B write invoke
125 B effect-write ok value=1 number=1 on=1
126 B effect-write ok value=1 number=1 on=2
127 B write ok
130 A effect-write fail value=5 number=1 fenced on=1
131 A effect-write ok value=5 number=1 on=3
132 A effect-write fail value=5 number=1 fenced on=2
320 A release invoke
400 B release invoke
500 A final info value=1
501 A final info value=1 on=1
502 A final info value=1 on=2
503 A final info on=3
`

// The replicas' files are judged as one resource: effects and final reads.
func TestReplicasAreJudgedAsOne(t *testing.T) {
	r := judged(t, prepared(t, replicatedScript, enough, func(d *runDir) { d.env.Increments = true }))
	want := map[string]int64{"stale_writes": 0, "fence_saves": 1, "minority_effects": 1, "lost_updates": 0, "overlapping_holds": 1}
	for name, n := range want {
		if got := r.Counts[name]; got == nil || *got != n {
			t.Errorf("%s is %v, want %d", name, got, n)
		}
	}
	if r.Judged.Effects != 2 {
		t.Errorf("%d effects were judged, want one write and one refusal", r.Judged.Effects)
	}
}

// The broken control: read as if each replica were the resource, the same files show a stale write and a lost update.
func TestReplicasAreNotTheResource(t *testing.T) {
	r := judged(t, prepared(t, replicatedScript, enough, func(d *runDir) { d.env.Increments, d.env.Replicas = true, nil }))
	for _, name := range []string{"stale_writes", "lost_updates"} {
		if got := r.Counts[name]; got == nil || *got == 0 {
			t.Errorf("%s is %v", name, got)
		}
	}
}

func TestLogAttributesEvents(t *testing.T) {
	d := prepared(t, replicatedScript, enough, nil)
	l, err := results.OpenLog(d.dir, d.env)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var e history.Event
	var last int64
	effects := 0
	for {
		h, err := l.Next(&e)
		if err != nil {
			break
		}
		if e.Time < last {
			t.Errorf("%v after %d", e, last)
		}
		last = e.Time
		if isEffect := e.Kind == history.EffectWrite; isEffect != (h.Process == "epoch") {
			t.Errorf("%v is said to be %s's", e, h.Process)
		} else if isEffect {
			effects++
		}
	}
	if effects != 3 || l.Heard()["epoch-1"] != 3 || l.Heard()["epoch-3"] != 2 {
		t.Errorf("%d effects; heard %v", effects, l.Heard())
	}
}
