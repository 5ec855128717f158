package engine

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockquake/lockquake/backends/topology"
	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/wire"
	"github.com/lockquake/lockquake/results"
)

// TestTheServiceIsAskedAfterEachAnswer: after a grant, and after a renewal or release that was done or certainly was
// not.
func TestTheServiceIsAskedAfterEachAnswer(t *testing.T) {
	t.Parallel()
	left := 1500 * time.Millisecond
	s := &testbed{
		t: t, takes: []string{wire.DoRenew}, stored: func() topology.Stored {
			return topology.Stored{Holder: "mine", EndsIn: &left, Keys: []string{"mine", "other"}}
		},
		scripts: map[string]script{"client-1": {commanded: func(a *fakeNode, c wire.Command) *wire.Result {
			a.carryOut(c)
			switch c.Do {
			case wire.DoAcquire:
				return &wire.Result{Outcome: wire.OutcomeOK, Grant: "mine"}
			case wire.DoRenew:
				return &wire.Result{Outcome: wire.OutcomeInfo}
			}
			return &wire.Result{Outcome: wire.OutcomeOK}
		}}},
	}
	got := s.run(t.Context(), directed("{do: acquire, user: A}", "{do: renew, user: A, outcome: info}", "{do: release, user: A}",
		"{await: elapsed, for: 5ms}", `{observe: "keys:lock-0", on: service}`, `{await: fact, fact: "holder:lock-0", node: service, is: mine}`))
	s.wantVerdict(got, results.Fail) // the release was ok, and the grant is there
	seen, err := results.ReadObserved(got.dir)
	if err != nil {
		t.Fatal(err)
	}
	var asked []string
	for _, o := range seen {
		asked = append(asked, fmt.Sprintf("%d %s %s %s %s", o.Step, o.By, o.Node, o.Fact, o.Answer))
		holder := strings.HasPrefix(o.Fact, history.FactHolder)
		if holder != (o.User != nil) || holder != (o.EndsIn != nil) || holder && *o.EndsIn != int64(left) {
			t.Errorf("%+v", o)
		}
	}
	want := []string{
		"1 answer service holder:lock-0 mine", "3 answer service holder:lock-0 mine", "5 observe service keys:lock-0 mine,other", "6 await service holder:lock-0 mine",
	}
	if strings.Join(asked, "\n") != strings.Join(want, "\n") {
		t.Errorf("asked %q, want %q", asked, want)
	}
	if n := got.report.Counts["false_results"]; n == nil || *n != 1 {
		t.Errorf("false results: %v", n)
	}
}

// TestUnknownFactsAreRefused is rejected before anything starts.
func TestUnknownFactsAreRefused(t *testing.T) {
	t.Parallel()
	free := func() topology.Stored { return topology.Stored{Holder: "none"} }
	for _, c := range []struct {
		bed  *testbed
		fact string
		want string
	}{
		{&testbed{}, "holder:lock-0", "cannot name the owner of a lock"},
		{&testbed{stored: free}, "role", `has no fact "role"`},
		{&testbed{stored: free}, "keys:lock-0", ""},
	} {
		c.bed.t = t
		_, err := Check(c.bed.options(directed("{do: acquire, user: A}", `{observe: "`+c.fact+`", on: service}`)))
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.fact, err, c.want)
		}
	}
}
