package suite_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockquake/lockquake/internal/suite"
	"github.com/lockquake/lockquake/internal/wire"
	"github.com/lockquake/lockquake/scenarios"
)

// says returns an Ask by which every program of a scenario gives the same answers, one hello for each.
func says(hellos ...*wire.Hello) suite.Ask {
	return func(scenarios.Scenario) ([]*wire.Hello, error) { return hellos, nil }
}

// apart returns the stories that do not apply, with the reasons.
func apart(t *testing.T, cells []suite.Cell) (why map[string]string) {
	t.Helper()
	why = map[string]string{}
	for _, c := range cells {
		why[c.Story] = c.Apart
	}
	return why
}

// TestExternalService requires that the stories follow from what the row declares of the service, with a TTL that
// it honours.
func TestExternalService(t *testing.T) {
	t.Parallel()
	const row = "locks: [{backend: external, client: {run: [./mine]}, set: ['backend.endpoints=[127.0.0.1:1]', %s]}]"
	full := &wire.Hello{Process: "mine", Orders: []string{wire.DoRenew}, Tells: true}
	for set, want := range map[string]map[string]string{
		"backend.token=service, backend.recovery=3s, backend.min_ttl=4s": {"late-release": "", "late-renewal": "", "overdue": "", "news": "", "queue": "the lock does not promise to serve users in order"},
		"backend.expires=false": {"late-release": "the lock's grants have no expiry", "overdue": "the lock has no recovery bound", "contention": ""},
	} {
		cells, err := planWith(strings.Replace(row, "%s", set, 1), says(full))
		if err != nil {
			t.Fatal(err)
		}
		got := apart(t, cells)
		for story, why := range want {
			if has, ok := got[story]; !ok || has != why {
				t.Errorf("%s: %s does not apply for %q, want %q", set, story, has, why)
			}
		}
		ttl := 2 * time.Second
		if strings.Contains(set, "min_ttl") {
			ttl = 4 * time.Second
		}
		if s := cells[0].Scenario; s.Backend.TTL != ttl || !cells[0].Foreign {
			t.Errorf("%s: its TTL is %v", set, s.Backend.TTL)
		}
	}
	_, err := planWith(strings.Replace(row, "%s", "backend.token=perhaps", 1), says(full))
	if err == nil || !strings.Contains(err.Error(), `s.yaml:1:8: locks: backend external: token is "perhaps"`) {
		t.Errorf("a token of that kind: %v", err)
	}
}

// TestStoriesFollowFromAnnouncedPoints requires the stories about the points that all programs of a lock announce, and none about
// an order that one of them does not support.
func TestStoriesFollowFromAnnouncedPoints(t *testing.T) {
	t.Parallel()
	points := []string{"before-set", "set-done", "told", "before-get", "get-done"}
	one := &wire.Hello{Process: "one", Points: points, Orders: []string{wire.DoRenew}, Tells: true}
	two := &wire.Hello{Process: "two", Points: points[1:]}
	none := &wire.Hello{Process: "none"}
	keeps := &wire.Hello{Process: "keeps", Orders: []string{wire.DoRenew}, Keeps: true}
	elsewhere := &wire.Hello{Process: "elsewhere", Elsewhere: true}
	bounded := &wire.Hello{Process: "bounded", Hung: &wire.Bound{TTLs: 3}}
	for _, c := range []struct {
		lock   string
		hellos []*wire.Hello
		want   map[string]string
		absent []string
	}{
		{"redis", []*wire.Hello{one}, map[string]string{"late-release-before-get": "", "crash-set-done": "", "late-renewal": "", "news": ""}, []string{"late-release-before-delete"}},
		{"redis", []*wire.Hello{one, two}, map[string]string{
			"late-release-before-get": "", "late-renewal": "the lock cannot be renewed by a call", "news": "the lock reports no loss",
		}, []string{"crash-set-done"}},
		{"redis", []*wire.Hello{none}, map[string]string{"renewal": "the lock cannot be renewed by a call", "cancel": "", "steady-delay": "nothing extends the lock's grants"}, []string{"late-release-before-get", "late-release-before-delete"}},
		{"zookeeper", []*wire.Hello{one}, map[string]string{"overdue": "", "renewal": ""}, nil},
		{"zookeeper", []*wire.Hello{one, keeps}, map[string]string{"overdue": "the lock renews grants by itself", "renewal": ""}, nil},
		{"redis", []*wire.Hello{one, elsewhere}, map[string]string{"answers": "the service cannot be asked for the owner of the lock", "waiting": "", "late-release": ""}, nil},
		{"redis", []*wire.Hello{one}, map[string]string{"hung-user": "only users renew the lock's grants"}, nil},
		{"redis", []*wire.Hello{bounded}, map[string]string{"hung-user": "", "overdue": "the lock renews grants by itself"}, nil},
		// A program without the order to renew renews by itself, if the lock whose promises it makes does.
		{"etcd", []*wire.Hello{none}, map[string]string{"overdue": "the lock renews grants by itself", "steady-delay": ""}, nil},
	} {
		cells, err := planWith("locks: [{backend: "+c.lock+", client: {run: [./one]}}]", says(c.hellos...))
		if err != nil {
			t.Fatal(err)
		}
		got := apart(t, cells)
		for story, why := range c.want {
			if has, ok := got[story]; !ok || has != why {
				t.Errorf("%s by %s: %s does not apply for %q, want %q", c.lock, c.hellos[0].Process, story, has, why)
			}
		}
		for _, story := range c.absent {
			if _, ok := got[story]; ok {
				t.Errorf("%s by %s: there is a story %s", c.lock, c.hellos[0].Process, story)
			}
		}
	}
}

// TestBoundForHungUsersIsDeclared requires the story about a user that hangs to demand the longest bound of all
// programs, and none if one of them declares none.
func TestBoundForHungUsersIsDeclared(t *testing.T) {
	t.Parallel()
	keeps := &wire.Hello{Process: "keeps", Keeps: true}
	short := &wire.Hello{Process: "short", Hung: &wire.Bound{TTLs: 1}}
	long := &wire.Hello{Process: "long", Hung: &wire.Bound{TTLs: 2, Plus: int64(500 * time.Millisecond)}}
	for _, c := range []struct {
		hellos []*wire.Hello
		want   string
	}{
		{[]*wire.Hello{keeps}, ""},
		{[]*wire.Hello{long}, "longest_wait_ms < 5500"},
		{[]*wire.Hello{short, long}, "longest_wait_ms < 5500"},
		{[]*wire.Hello{long, keeps}, ""},
	} {
		cells, err := planWith("locks: [{backend: redis, client: {run: [./one]}}]", says(c.hellos...))
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(cells, func(c suite.Cell) bool { return c.Story == "hung-user" })
		if i < 0 {
			t.Fatal("there is no story hung-user")
		}
		got := ""
		for _, e := range cells[i].Scenario.Expect {
			if e.Name == "longest_wait_ms" {
				got = fmt.Sprintf("%s %s %v", e.Name, e.Op, e.Value)
			}
		}
		if got != c.want {
			t.Errorf("%d programs: the story expects %q, want %q", len(c.hellos), got, c.want)
		}
	}
}

// TestAProgramThatCannotBeAsked requires that all its cells are listed with the reason, and no other row's.
func TestAProgramThatCannotBeAsked(t *testing.T) {
	t.Parallel()
	cells, err := planWith("locks: [{backend: redis, client: {run: [./mine]}}, {backend: redis}]\nstories: [contention, crash]", func(scenarios.Scenario) ([]*wire.Hello, error) {
		return nil, errors.New("client-1: no hello")
	})
	if err != nil || len(cells) != 4 {
		t.Fatalf("%v: %s", err, names(cells))
	}
	for _, c := range cells {
		if asked := strings.HasSuffix(c.Lock, "mine"); asked != (c.NotRun == "client-1: no hello" && c.Missing) {
			t.Errorf("%s, %s is not run for %q", c.Lock, c.Story, c.NotRun)
		}
	}
}
