package postgres

import (
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lockquake/lockquake/backends/topology"
)

// TestSessionsOfAPooler distinguishes a server's sessions from those that a pooler hands out.
func TestSessionsOfAPooler(t *testing.T) {
	asked := target{keys: "bench_r1/", name: "the supervisor"}
	own := seenSession{pid: 7, path: `"bench_r1"`, name: asked.name, started: "1"}
	of := func(change func(*seenSession)) seenSession { s := own; change(&s); return s }
	other := of(func(s *seenSession) { s.pid = 8 })
	for _, c := range []struct {
		name string
		seen []seenSession // of two connections, in turns
		want string
	}{
		{"the server itself", []seenSession{own, other, own, other}, ""},
		{"its own schema is there already", []seenSession{of(func(s *seenSession) { s.schema = "bench_r1" }), other}, ""},
		{"one process for two connections", []seenSession{own, own, own, own}, "two connections have one session (pg_backend_pid() is 7"},
		{"another process for the second statement", []seenSession{own, other, other, own}, "two statements of one connection"},
		{"the same number on two servers", []seenSession{own, of(func(s *seenSession) { s.started = "2" })}, ""},
		{"a path that was dropped", []seenSession{of(func(s *seenSession) { s.path, s.schema = `"$user", public`, "public" })}, "search_path"},
		{"a path that was dropped on the second", []seenSession{own, of(func(s *seenSession) { s.pid, s.path = 8, "public" })}, "search_path"},
		{"a schema that is another", []seenSession{of(func(s *seenSession) { s.schema = "public" })}, `current_schema() is "public"`},
		{"a name that was dropped", []seenSession{of(func(s *seenSession) { s.name = "" })}, "application_name"},
	} {
		if got := asked.odd(c.seen); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	if got := (target{name: asked.name}).odd([]seenSession{of(func(s *seenSession) { s.path, s.schema = "public", "public" })}); got != "" {
		t.Errorf("without a prefix no path is asked for: %q", got)
	}
	refusal := &pgconn.PgError{Code: "08P01", Message: "unsupported startup parameter: search_path"}
	if err := asPooler("x:1", refusal); !errors.Is(err, topology.ErrNotItself) {
		t.Errorf("%v is not taken for a pooler's", err)
	}
	if err := asPooler("x:1", errors.New("refused")); errors.Is(err, topology.ErrNotItself) {
		t.Error("a refused connect is taken for a pooler's")
	}
}
