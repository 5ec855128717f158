package scene

import (
	"slices"
	"testing"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
)

// TestGrantingServers: a server that has the key, but whose answer never arrived, is not named among those that
// granted it.
func TestGrantingServers(t *testing.T) {
	u := history.MakeUser(0, 0)
	sc := &Scene{Reasons: Reasons{}}
	for _, node := range []string{"redlock-1", "redlock-2", "redlock-3"} {
		sc.Seen = append(sc.Seen, history.Observation{By: history.ByGrant, Node: node, Fact: history.FactHolder + "lock-0", User: &u, Grant: 1, Asked: 10, Answered: 11})
	}
	h := results.HoldRef{User: u, Grant: 1, Start: 5}
	all := sc.Seen.Keepers(h)
	if got := sc.Answered(h, all); len(all) != 3 || len(got) != 3 {
		t.Errorf("%q have the key, and %q granted it", all, got)
	}
	e := history.Event{Kind: history.Reason, User: u, Op: 1, Code: history.CauseAnsweredBy, Token: 0b101, Value: 3}
	sc.Reasons.Observe("client-1", &e)
	if got := sc.Answered(h, all); !slices.Equal(got, []string{"redlock-1", "redlock-3"}) {
		t.Errorf("%q granted it", got)
	}
}
