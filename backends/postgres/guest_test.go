package postgres

import (
	"fmt"
	"strings"
	"testing"

	"github.com/lockquake/lockquake/backends/topology"
)

// TestLocksAreBelowThePrefix: two prefixes have two schemas and two classes of advisory locks, and every statement
// contains the class.
func TestLocksAreBelowThePrefix(t *testing.T) {
	a, b := keyspace("bench_r1/"), keyspace("bench_r2/")
	if a.schema() != "bench_r1" || a.quoted() != `"bench_r1"` {
		t.Errorf("the schema is %s, quoted %s", a.schema(), a.quoted())
	}
	if a.class() == b.class() || a.class() == keyspace("").class() {
		t.Errorf("prefixes share the class %d", a.class())
	}
	if !strings.HasPrefix(a.advisory(), fmt.Sprintf("%d, ", a.class())) || !strings.Contains(a.entry(), fmt.Sprintf("classid::bigint = %d ", uint32(a.class()))) {
		t.Errorf("class %d is not in %q and %q", a.class(), a.advisory(), a.entry())
	}
}

// TestPrefixes: a prefix that is not the beginning of a valid schema name is rejected.
func TestPrefixes(t *testing.T) {
	for under, ok := range map[string]bool{"bench_": true, "b1": true, "pg_bench": false, "Bench": false, "bench-": false, strings.Repeat("x", 51): false} {
		if err := checkPrefix(topology.Common{Attached: &topology.Attached{Under: under}}); (err == nil) != ok {
			t.Errorf("%s: %v", under, err)
		}
	}
}
