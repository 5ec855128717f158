package plan

import (
	"strings"
	"testing"

	"github.com/lockquake/lockquake/internal/cluster"
	"github.com/lockquake/lockquake/internal/node"
	"github.com/lockquake/lockquake/internal/wire"
	"github.com/lockquake/lockquake/scenarios"
)

// TestWhatAUserDoesAtAPoint: the last step before has armed it there.
func TestWhatAUserDoesAtAPoint(t *testing.T) {
	t.Parallel()
	arm := func(user, point, action string) scenarios.Step {
		return scenarios.Step{Do: wire.DoArm, User: user, Point: point, Action: action}
	}
	await := scenarios.Step{Await: "point", User: "A", Point: "here"}
	p := &Plan{Scenario: scenarios.Scenario{Steps: []scenarios.Step{
		arm("A", "here", wire.ActionWait), arm("A", "there", wire.ActionDie), arm("B", "here", wire.ActionDie),
		{Do: wire.DoContinue, User: "A", Point: "here", Action: wire.ActionDie},
		await,
		arm("A", "here", wire.ActionDie), await,
		arm("A", "here", wire.ActionWait), await,
	}}}
	for number, want := range map[int]string{5: "reached", 7: "died", 9: "reached"} {
		if got := p.Passage(number, await); got != want {
			t.Errorf("step %d: it %s, want %s", number, got, want)
		}
	}
}

// TestAttachedServersAreNotStarted, and all other nodes are.
func TestAttachedServersAreNotStarted(t *testing.T) {
	t.Parallel()
	p := &Plan{Specs: []node.Spec{{Name: "redis-1", Role: node.Server}, {Name: "client-1", Role: node.Client}}}
	if own := p.OwnSpecs(); len(own) != 2 {
		t.Errorf("started are %v", own)
	}
	p.Outside = []*cluster.Node{nil}
	if own := p.OwnSpecs(); len(own) != 1 || own[0].Name != "client-1" {
		t.Errorf("beside servers of somebody else, started are %v", own)
	}
}

// TestRunsOnAnAttachedServiceWriteApart: each below a prefix of its own.
func TestRunsOnAnAttachedServiceWriteApart(t *testing.T) {
	t.Parallel()
	a := Attached{Prefix: "bench:"}
	if x, y := a.below("r1"), a.below("r2"); x == y || !strings.HasPrefix(x, "bench:") {
		t.Errorf("two runs write below %s and %s", x, y)
	}
}
