package access

import (
	"strings"
	"testing"
)

// below is the prefix of a run on external servers.
const below = "bench:r1/"

// TestKeysAreBelowThePrefix: every name that the package creates begins with the prefix, and the keys of one lock
// share a slot.
func TestKeysAreBelowThePrefix(t *testing.T) {
	k := Keyspace(below)
	names := append(k.Keys("stock"), k.Key("stock"), k.Counter("stock"), k.Ready(), k.Probe("stock"), k.RueidisPrefix())
	for _, name := range names {
		if !strings.HasPrefix(name, below) {
			t.Errorf("%q is not below %s", name, below)
		}
	}
	for _, name := range []string{k.Key("stock"), k.Counter("stock"), k.Probe("stock"), k.Keys("stock")[1]} {
		if !strings.Contains(name, "{stock}") {
			t.Errorf("%q is in another slot than the lock", name)
		}
	}
}
