package chaos

import (
	"strings"
	"testing"
)

// unled is a service in which each lock has a leader, but no node leads all of them.
type unled struct{ sharded }

func (unled) Leaderless(lock string) string {
	if lock != "" {
		return ""
	}
	return "each lock has its own"
}

var (
	sixServers = []string{"redis-1", "redis-2", "redis-3", "redis-4", "redis-5", "redis-6"}
	mixed      = []string{"redis-1", "redis-2", "redis-3", "sentinel-1", "sentinel-2", "sentinel-3"}
)

func aimed(t *testing.T, text string, servers []string) Selector {
	t.Helper()
	s, err := ParseSelector(text, append([]string{"client-1", "client-2"}, servers...))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestACrowdIsKnownBeforehand(t *testing.T) {
	for _, c := range []struct {
		on      string
		servers []string
		want    string // "": it may be one node
	}{
		{"one", sixServers, ""},
		{"leader", sixServers, ""},
		{"holder", sixServers, ""},
		{"redis-2", sixServers, ""},
		{"redis-2, redis-2", sixServers, ""},
		{"leader, redis-2", sixServers, ""}, // it may be the one that leads
		{"redis-2, redis-3", sixServers, "redis-2, redis-3 are 2 nodes"},
		{"minority", sixServers, "minority is 2 of 6 servers"},
		{"minority", sixServers[:3], ""},
		{"majority", sixServers[:3], "majority is 2 of 3 servers"},
		{"majority", sixServers[:1], ""},
		{"all", sixServers[:3], "all is 3 of 3 servers"},
		{"all", sixServers[:1], ""},
		{"clients", sixServers, "clients is 2 of 2 clients"},
		{"followers", sixServers[:3], "followers are more than one of 3 servers"},
		{"followers", sixServers[:2], ""},
		{"followers(lock-0)", sixServers, ""},
		{"followers", mixed, ""},
		{"leader or minority", sixServers, "minority is 2 of 6 servers"},
		{"leader or one", sixServers, ""},
	} {
		if got := aimed(t, c.on, c.servers).Several(c.servers, []string{"client-1", "client-2"}); got != c.want {
			t.Errorf("%s of %d servers: %q, want %q", c.on, len(c.servers), got, c.want)
		}
	}
}

func TestASingleFaultIsAimedAtOne(t *testing.T) {
	for _, c := range []struct {
		single  bool
		on      string
		service Observer
		want    string // in the reason; "": it can be made
	}{
		{true, "minority", roles{}, "x has one target at a time, and minority is 2 of 6 servers; write leader, one, or the name of one server"},
		{true, "minority", sharded{}, "write leader(LOCK), one"},
		{true, "minority", nil, "write leader, one"},
		{true, "leader", roles{}, ""},
		{true, "one", roles{}, ""},
		{false, "minority", roles{}, ""},
		{false, "leader", unled{}, "leader can never be found: each lock has its own"},
		{false, "one or leader", unled{}, "leader can never be found"},
		{false, "leader(lock-0)", unled{}, ""},
		{true, "leader(lock-0)", unled{}, ""},
		{false, "leader", nil, ""},
	} {
		got := Kind{Name: "x", Single: c.single}.Aim(aimed(t, c.on, sixServers), c.service, sixServers, nil)
		if c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("single %t on %s: %q, want %q", c.single, c.on, got, c.want)
		}
	}
}
