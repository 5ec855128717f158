package chaos

import (
	"slices"
	"strings"
	"testing"

	"github.com/lockquake/lockquake/internal/seed"
)

// The seed draws each alternative about equally often. A drawn alternative is a target like any other.
func TestAlternativesAreDrawnFromTheSeed(t *testing.T) {
	sel := selectors(t, "leader or all or one")[0]
	drawn := map[string]int{}
	for s := range uint64(300) {
		got := sel.Settle(threeServers, seed.Rand(s, "x")).String()
		if again := sel.Settle(threeServers, seed.Rand(s, "x")).String(); again != got {
			t.Errorf("seed %d draws %s, then %s", s, got, again)
		}
		if slices.Contains(threeServers, got) {
			got = "one"
		}
		drawn[got]++
	}
	for _, word := range []string{"leader", "all", "one"} {
		if drawn[word] < 60 || drawn[word] > 140 {
			t.Errorf("%s was drawn %d times of 300", word, drawn[word])
		}
	}
	if got := sel.Parts(); !slices.Equal(got, []string{"leader", "all", "one"}) {
		t.Errorf("parts %v", got)
	}
}

// Without a call of Settle, Resolve draws the alternative.
func TestAlternativesResolve(t *testing.T) {
	v := View{Servers: nodes("s1", "s2", "s3"), Service: roles{"s1": "follower", "s2": "leader", "s3": "follower"}}
	v.All = v.Servers
	seen := map[string]bool{}
	sel := selectorOf(t, "leader or all", "s1")
	for s := range uint64(20) {
		v.Random = seed.Rand(s, "x")
		got, err := sel.Resolve(t.Context(), v)
		if err != nil {
			t.Fatal(err)
		}
		seen[joinNames(got)] = true
	}
	if !seen["s2"] || !seen["s1 s2 s3"] || len(seen) != 2 {
		t.Errorf("resolved to %v", seen)
	}
}

func selectorOf(t *testing.T, text string, nodes ...string) Selector {
	t.Helper()
	s, err := ParseSelector(text, nodes)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A holder is found by its grant, so it cannot be an alternative. A promise is allowed if at least one alternative can
// keep it.
func TestAlternativesHaveLimits(t *testing.T) {
	if _, err := ParseSelector("leader or holder", nil); err == nil || !strings.Contains(err.Error(), "cannot be combined") {
		t.Errorf("a holder among alternatives: %v", err)
	}
	p := Promise{Majority: true}
	for text, can := range map[string]bool{"leader or all": true, "all or majority": false} {
		if why := p.Never(selectorOf(t, text), threeServers, seed.Rand(1, "x")); (why == "") != can {
			t.Errorf("%s: %q", text, why)
		}
	}
}
