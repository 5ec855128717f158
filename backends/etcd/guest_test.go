package etcd

import (
	"strings"
	"testing"
)

// TestKeysAreBelowThePrefix: every name that the package creates on external servers begins with the prefix; without
// a prefix none does.
func TestKeysAreBelowThePrefix(t *testing.T) {
	const below = "bench/r1/"
	for _, name := range []string{keyspace(below).at("stock"), keyspace(below).ready()} {
		if !strings.HasPrefix(name, below) {
			t.Errorf("%q is not below %s", name, below)
		}
	}
	if a, b := keyspace(below).at("stock"), keyspace(below).at("paper"); a == b || a == keyspace(below).ready() {
		t.Errorf("two locks are kept at %s", a)
	}
	if own := keyspace("").at("stock"); !strings.HasPrefix(own, ownKeys) {
		t.Errorf("%q is not below %s", own, ownKeys)
	}
}
