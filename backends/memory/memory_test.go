package memory

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/backends/conformance"
)

func access(run, lockName string) backends.Access {
	return backends.Access{Backend: "memory", Lock: lockName, TTL: 400 * time.Millisecond, Run: run}
}

// TestConformance puts the right lock to the suite.
func TestConformance(t *testing.T) {
	conformance.Run(t, conformance.Options{Backend: Backend(), Access: access("right", "exact")})
}

// fails says which checks each wrong lock fails, and thereby that the suite sees what it is there to see.
var fails = map[string][]string{
	"never-excludes": {
		"cancel", "exclusion-crowd", "exclusion-pair", "expiry", "order", "release-forged", "release-stale", "renewal",
		"token-growth", "token-stopped",
	},
	"expires-early":    {"expiry", "renewal"},
	"forgets-renewals": {"renewal"},
	"reuses-tokens":    {"token-growth"},
	"falling-tokens":   {"token-growth"},
	"late-fence":       {"token-stopped"},
	"frees-foreign":    {"release-forged", "release-stale"},
	"never-expires":    {"check", "expiry", "release-stale", "token-stopped"},
	"last-first":       {"order"},
}

// TestWrongLocks holds each wrong lock to exactly the checks that it must fail.
func TestWrongLocks(t *testing.T) {
	for _, l := range Backend().Locks {
		if l.Wrong == "" {
			continue
		}
		t.Run(l.Name, func(t *testing.T) {
			t.Parallel()
			failed := conformance.Judge(t.Context(), conformance.Options{Backend: Backend(), Access: access("wrong", l.Name)})
			got := slices.Sorted(maps.Keys(failed))
			if want := fails[l.Name]; !slices.Equal(got, want) {
				t.Errorf("fails %q, should fail %q", got, want)
				for _, name := range got {
					t.Logf("%s: %v", name, failed[name])
				}
			}
		})
	}
}
