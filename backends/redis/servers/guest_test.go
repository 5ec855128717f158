package servers

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockquake/lockquake/backends/listed"
	"github.com/lockquake/lockquake/backends/redis/access"
	"github.com/lockquake/lockquake/backends/redis/redistest"
	"github.com/lockquake/lockquake/backends/topology"
	"github.com/lockquake/lockquake/internal/node"
)

// guestOf returns a topology on external servers at these addresses.
func guestOf(t *testing.T, b listed.Backend, addresses ...string) topology.Guest {
	t.Helper()
	c := topology.Common{
		Nodes: len(addresses), TTL: time.Second,
		Attached: &topology.Attached{Run: "r1", Under: "bench:", Prefix: "bench:r1/", Ports: map[string]int{access.Port: len(addresses)}},
	}
	top, err := b.New(c, func(any) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	if got := len(top.Specs()); got != len(addresses) {
		t.Errorf("%s has %d nodes for %d endpoints", b.Name, got, len(addresses))
	}
	var nodes []node.Handle
	for _, a := range addresses {
		nodes = append(nodes, foundServer{address: a})
	}
	s := top.Service(nodes)
	t.Cleanup(func() { _ = s.Close() })
	return s.(topology.Guest)
}

// answers answers a command by the first of these words that the command contains.
func answers(pairs ...string) func(text, self string) string {
	return func(text, self string) string {
		if strings.Contains(text, "SETNAME") && !strings.Contains(text, "HELLO") { // sent on each new connection
			return "+OK\r\n"
		}
		for i := 0; i < len(pairs); i += 2 {
			if strings.Contains(text, pairs[i]) {
				return strings.ReplaceAll(pairs[i+1], "SELF", redistest.Slots(self))
			}
		}
		return "-ERR unknown command\r\n"
	}
}

const (
	roleMaster = "*3\r\n$6\r\nmaster\r\n:0\r\n*0\r\n"
	noKey      = "$-1\r\n"
	scanOn     = "*2\r\n$1\r\n7\r\n*0\r\n" // there is always more
	scanDone   = "*2\r\n$1\r\n0\r\n*0\r\n"
)

// TestVacantIsBounded: a server has more keys than the first scan examines, and the result says so.
func TestVacantIsBounded(t *testing.T) {
	t.Parallel()
	address := redistest.Play(t, answers("ROLE", roleMaster, "GET\r\n", noKey, "DBSIZE", ":84000000\r\n", "SCAN", scanOn))
	partly, err := guestOf(t, Single(nil), address).Vacant(t.Context())
	if want := "some 100000 of 84000000 keys of " + address; err != nil || partly != want {
		t.Errorf("looked at %q, %v; want %q", partly, err, want)
	}
}

// TestVacantFindsTheMarker rejects servers with another run, without examining their keys.
func TestVacantFindsTheMarker(t *testing.T) {
	t.Parallel()
	address := redistest.Play(t, answers("ROLE", roleMaster, "BENCH:LOCKQUAKE", "$2\r\nr0\r\n"))
	_, err := guestOf(t, Single(nil), address).Vacant(t.Context())
	if !errors.Is(err, topology.ErrOccupied) || !strings.Contains(err.Error(), "run r0") {
		t.Errorf("the error is %v", err)
	}
}

// TestScanKeepsToThePrefix takes glob metacharacters in a prefix literally, and returns no foreign key, whatever the
// server answers.
func TestScanKeepsToThePrefix(t *testing.T) {
	t.Parallel()
	const theirs = "*2\r\n$1\r\n0\r\n*1\r\n$6\r\ntheirs\r\n"
	address := redistest.Play(t, answers(`B\*NCH:*`, scanDone, "SCAN", theirs))
	o := access.Options(time.Second, node.Login{}).Simple()
	o.Addr = address
	m := member{client: redis.NewClient(o), address: address}
	t.Cleanup(func() { _ = m.client.Close() })
	none := func(keys []string) error { return fmt.Errorf("found %q", keys) }
	if _, err := m.scan(t.Context(), "b*nch:", none); err != nil {
		t.Errorf("the prefix b*nch: %v", err)
	}
	if _, err := m.scan(t.Context(), "bench:", none); err == nil || !strings.Contains(err.Error(), "it returned the key theirs") {
		t.Errorf("a key of others: %v", err)
	}
}

// TestClusterGuestFindsServers uses one server of a cluster as a seed, and finds the others at the addresses that the
// cluster announces.
func TestClusterGuestFindsServers(t *testing.T) {
	t.Parallel()
	other := redistest.Play(t, answers("ROLE", roleMaster, "SCAN", scanDone, "GET\r\n", noKey))
	both := func(self string) string {
		var b strings.Builder
		b.WriteString("*2\r\n")
		for i, a := range []string{self, other} {
			host, port := splitAddress(a)
			fmt.Fprintf(&b, "*3\r\n:%d\r\n:%d\r\n*2\r\n$%d\r\n%s\r\n:%s\r\n", i*8192, i*8192+8191, len(host), host, port)
		}
		return b.String()
	}
	rest := answers("ROLE", roleMaster, "SCAN", scanDone, "GET\r\n", noKey)
	seed := redistest.Play(t, func(text, self string) string {
		if strings.Contains(text, "SLOTS") {
			return both(self)
		}
		return rest(text, self)
	})
	g := guestOf(t, Cluster(nil), seed)
	if _, err := g.Vacant(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := g.(topology.Announcer).Announced(); len(got) != 1 || got[0] != other {
		t.Errorf("announced are %q; want %s alone", got, other)
	}
}

// TestClusterGuestRefuses: the error says what is wrong with a cluster that clients could not use.
func TestClusterGuestRefuses(t *testing.T) {
	t.Parallel()
	whole := redistest.Play(t, answers("SLOTS", "SELF"))
	for name, c := range map[string]struct {
		answer string
		want   string
		beside bool
	}{
		"no cluster":       {"-ERR This instance has cluster support disabled\r\n", "cluster support disabled", false},
		"half of it":       {"*1\r\n*3\r\n:0\r\n:8191\r\n*2\r\n$9\r\n192.0.2.1\r\n:6379\r\n", "8192 of 16384 slots", false},
		"no address":       {"*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$0\r\n\r\n:6379\r\n", "must announce one", false},
		"another's member": {"SELF", "the primaries of its cluster are", true},
	} {
		addresses := []string{redistest.Play(t, answers("SLOTS", c.answer))}
		if c.beside {
			addresses = append(addresses, whole)
		}
		if _, err := guestOf(t, Cluster(nil), addresses...).Vacant(t.Context()); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: the error is %v; it should have %q", name, err, c.want)
		}
	}
}

// TestPrefixes: a prefix that would determine a slot of Redis Cluster is rejected.
func TestPrefixes(t *testing.T) {
	for prefix, ok := range map[string]bool{"bench:": true, "be{nch}:": false, "b}": false} {
		if err := checkPrefix(topology.Common{Attached: &topology.Attached{Under: prefix, Prefix: prefix}}); (err == nil) != ok {
			t.Errorf("%s: %v", prefix, err)
		}
	}
	if err := checkPrefix(topology.Common{}); err != nil {
		t.Error(err)
	}
}
