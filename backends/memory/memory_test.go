package memory

import (
	"testing"
	"time"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/backends/conformance"
)

func TestMain(m *testing.M) { conformance.Main(m, Backend().Backend) }

func access(run, lockName string) backends.Access {
	return backends.Access{Backend: "memory", Lock: lockName, TTL: 400 * time.Millisecond, Run: run}
}

// fails says which checks each wrong lock fails, and thereby that the suite sees what it is there to see.
var fails = map[string][]string{
	"never-excludes": {
		"cancel", "exclusion-crowd", "exclusion-pair", "expiry", "order", "release-forged", "release-point", "release-stale", "renewal",
		"token-growth", "token-stopped",
	},
	"expires-early":    {"expiry", "renewal"},
	"forgets-renewals": {"renewal"},
	"reuses-tokens":    {"token-growth"},
	"falling-tokens":   {"token-growth"},
	"late-fence":       {"token-stopped"},
	"frees-foreign":    {"release-forged", "release-point", "release-stale"},
	"never-expires":    {"check", "expiry", "release-point", "release-stale", "token-stopped"},
	"last-first":       {"order"},
	"never-refuses":    {"release-forged", "renewal"},
	"keeps-released":   {"cancel", "check", "close", "renewal"},
	"denies-renewals":  {"renewal", "validity-late"},
	"grants-to-nobody": {"cancel"},
	"deaf":             {"cancel"},
	"never-tells":      {"loss"},
	"tells-late":       {"loss"},
}

// TestConformance puts the right lock to the suite, and holds each wrong one to the checks that it must fail.
func TestConformance(t *testing.T) {
	conformance.RunAll(t, conformance.Options{Backend: Backend().Backend, Access: access("conf", "")}, fails)
}
