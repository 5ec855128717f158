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

// hashed returns the part of a key that Redis Cluster computes its slot from.
func hashed(key string) string {
	if _, rest, ok := strings.Cut(key, "{"); ok {
		if tag, _, ok := strings.Cut(rest, "}"); ok && tag != "" {
			return tag
		}
	}
	return key
}

// TestCounterIsInTheSlotOfTheKey: a script may use both, whatever braces the name has. No two locks share a counter.
func TestCounterIsInTheSlotOfTheKey(t *testing.T) {
	for _, k := range []Keyspace{"", below} {
		seen := map[string]string{}
		for _, name := range []string{"stock", "{tag}left", "{tag}right", "a{b}c", "open{", "{{x}}"} {
			counter := k.Counter(name)
			if hashed(counter) != hashed(k.Key(name)) {
				t.Errorf("%q: the key %q and the counter %q are in different slots", name, k.Key(name), counter)
			}
			if other, ok := seen[counter]; ok {
				t.Errorf("%q and %q share the counter %q", name, other, counter)
			}
			seen[counter] = name
		}
	}
}
