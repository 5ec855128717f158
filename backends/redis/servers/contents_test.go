package servers

import (
	"fmt"
	"testing"

	"github.com/lockquake/lockquake/backends/redis/redistest"
	"github.com/lockquake/lockquake/backends/topology"
)

// TestContentsSeeIntoValues: what a lock adds to one key, a script for each grant, and patterns are counted.
func TestContentsSeeIntoValues(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		kind, size string
		answer     int
		want       int64
	}{
		{"hash", "HLEN", 700, 700},
		{"stream", "XLEN", 7, 7},
		{"string", "STRLEN", 32, 1},
		{"string", "STRLEN", 25700, 101},
		{"other", "LLEN", 7, 0},
	} {
		bulk := func(text string) string { return fmt.Sprintf("$%d\r\n%s\r\n", len(text), text) }
		address := redistest.Play(t, answers(
			"KEYSPACE", bulk("# Keyspace\r\ndb0:keys=1,expires=0,avg_ttl=0\r\n"), "CLIENTS", bulk("connected_clients:3\r\n"),
			"STATS", bulk("pubsub_channels:2\r\npubsub_patterns:40\r\n"), "MEMORY", bulk("number_of_cached_scripts:9\r\n"),
			"SCAN", "*2\r\n$1\r\n0\r\n*1\r\n$1\r\nk\r\n", "TYPE", "+"+c.kind+"\r\n", c.size, fmt.Sprintf(":%d\r\n", c.answer),
		))
		got, err := guestOf(t, Single(nil), address).(topology.ContentCounter).Contents(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for kind, want := range map[string]int64{
			"keys": 1, "parts of values": c.want, "scripts": 9, "connections": 3, "channels": 42,
		} {
			if got[kind].N != want {
				t.Errorf("a %s: %d %s; want %d", c.kind, got[kind].N, kind, want)
			}
		}
	}
}

// TestContentsOfAServerThatReportsLess: what a server does not count is left out; it is not zero.
func TestContentsOfAServerThatReportsLess(t *testing.T) {
	t.Parallel()
	bulk := func(text string) string { return fmt.Sprintf("$%d\r\n%s\r\n", len(text), text) }
	address := redistest.Play(t, answers("KEYSPACE", bulk("# Keyspace\r\n"), "CLIENTS", bulk("connected_clients:3\r\n"),
		"STATS", bulk("pubsub_channels:2\r\n"), "MEMORY", bulk("used_memory:9\r\n"), "SCAN", "*2\r\n$1\r\n0\r\n*0\r\n"))
	got, err := guestOf(t, Single(nil), address).(topology.ContentCounter).Contents(t.Context())
	if _, ok := got["scripts"]; err != nil || ok || got["channels"].N != 2 || got["connections"].N != 3 {
		t.Errorf("%+v, %v", got, err)
	}
}
