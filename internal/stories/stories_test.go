package stories_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/backends/all"
	"github.com/lockquake/lockquake/internal/stories"
	"github.com/lockquake/lockquake/scenarios"
)

func subject(backend string, l backends.Lock) stories.Subject {
	return stories.Subject{Backend: backend, Lock: l, TTL: 2 * time.Second, Clients: 2, Users: 2, InProcess: backend == "memory"}
}

// TestEveryStoryIsAScenario reads each story of each lock as lockquake does.
func TestEveryStoryIsAScenario(t *testing.T) {
	t.Parallel()
	applies := map[string]bool{}
	for _, b := range all.All() {
		for _, l := range b.Locks {
			s := subject(b.Name, l)
			for _, story := range stories.Of(s) {
				text, err := story.Scenario("suite-", s)
				if err != nil {
					t.Fatal(err)
				}
				got, err := scenarios.Parse([]byte(text), story.Name)
				if err != nil {
					t.Errorf("%s/%s, %s: %v\n%s", b.Name, l.Name, story.Name, err, text)
					continue
				}
				if got.Name != "suite-"+story.Name || got.Backend.Lock != l.Name || len(got.Steps) == 0 && got.Workload.Use == "" {
					t.Errorf("%s/%s, %s: %+v", b.Name, l.Name, story.Name, got)
				}
				if story.Why(s) == "" {
					applies[general(story.Name)] = true
				}
			}
		}
	}
	for _, name := range stories.Names() {
		if !applies[name] {
			t.Errorf("%s applies to no lock", name)
		}
	}
}

// general is the name with POINT in the place of a point.
func general(name string) string {
	for _, n := range stories.Names() {
		if family, ok := strings.CutSuffix(n, "POINT"); ok && strings.HasPrefix(name, family) {
			return n
		}
	}
	return name
}

// TestPoints holds which points of a lock get a story.
func TestPoints(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		points string
		waits  bool
		want   string
	}{
		{"before-setnx setnx-done expire-done before-delete release-done", false, "late-release-before-delete crash-setnx-done late-token-setnx-done"},
		{"before-set set-done wait-done before-get get-done release-done", true, "late-release-before-get late-release-get-done"},
		{"before-lock lock-done before-unlock unlock-done", false, "late-release-before-unlock"},
		{"", false, ""},
	} {
		l := backends.Lock{Points: strings.Fields(c.points), Waits: c.waits}
		var got []string
		for _, s := range stories.Of(subject("redis", l)) {
			if !slices.Contains(stories.Names(), s.Name) {
				got = append(got, s.Name)
			}
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: %q, want %q", c.points, got, c.want)
		}
	}
}
