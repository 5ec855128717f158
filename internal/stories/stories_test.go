package stories_test

import (
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/backends/all"
	"github.com/lockquake/lockquake/internal/stories"
	"github.com/lockquake/lockquake/scenarios"
)

func subject(backend string, l backends.Lock) stories.Subject {
	return stories.Subject{Backend: backend, Servers: serversOf(backend), Lock: l, TTL: 2 * time.Second, Clients: 2, Users: 2, InProcess: backend == "memory"}
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
					applies[story.Family] = true
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

// TestPoints checks which points of a lock get a story.
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

// TestMistakes: a mistake in a file is reported with its line and a caret, and affects no other story.
func TestMistakes(t *testing.T) {
	t.Parallel()
	const right = "name: bad\nclaim: It is short.\nturn: 1\nneeds: [expires]\nsteps:\n  - {do: acquire, user: A, within: (long)}\n"
	for _, c := range []struct{ from, to, want string }{
		{"(long)", "(lnog)", "bad.yaml:6:36: \"lnog\" is not known; valid: bound, calm, delay, hung, long, patience, ttl, 0.5ttl, 500ms, "},
		{"(long)", "(0.5ttl+bund)", "bad.yaml:6:36: \"bund\" is not known"},
		{"- {do", "- {when: expirse, do", "bad.yaml:6:12: \"expirse\" is neither a trait nor a story; traits: processes, expires, "},
		{"- {do", "- {when: not worse, do", "bad.yaml:6:16: \"worse\" is neither a trait"},
		{"turn", "trun", "bad.yaml:3:1: unknown key \"trun\"; valid: name, claim"},
		{"turn: 1", "turn: soon", "bad.yaml:3:7: turn: strconv.Atoi: parsing \"soon\": invalid syntax"},
		{"turn: 1", "turn:", "bad.yaml:3:1: turn: has no value"},
		{"[expires]", "[expires, lapse]", "bad.yaml:4:18: needs: \"lapse\" is not a trait; valid: processes, "},
		{"name: bad", "name: worse", "bad.yaml:1:7: \"worse\" is not the name of the file"},
		{"name: bad", "like: worse", "bad.yaml:1:7: like: there is no story \"worse\""},
		{"name: bad", "like: good", "bad.yaml: steps: write steps, or name their story in like"},
		{"name: bad", "per: points", "bad.yaml:1:6: per: \"points\" is not known; valid: acquire-points, release-points"},
		{"name: bad", "per: release-points", "bad.yaml: per: a story about points needs POINT in its name"},
		{"name: bad", "takes: long-ish", "bad.yaml:1:8: takes: \"long-ish\" is not known"},
		{"steps:\n  - {do", "expect:\n  - do", "bad.yaml:6:3: each part of expect must be an entry such as - {key: value}"},
		{"steps:", "each:\n  - [\"a\", b]\nsteps:", "bad.yaml:6:3: want one or two quoted names, such as - [\"a\", \"b\"]"},
		{"claim: It is short.\n", "", "bad.yaml: claim: is missing"},
		{"turn: 1\n", "", "bad.yaml: turn: is missing"},
	} {
		text := strings.Replace(right, c.from, c.to, 1)
		list := stories.Read(fstest.MapFS{"bad.yaml": {Data: []byte(text)}, "good.yaml": {Data: []byte(strings.Replace(right, "bad", "good", 1))}})
		if len(list) != 2 {
			t.Fatalf("%d stories", len(list))
		}
		for _, x := range list {
			_, err := x.Scenario("", stories.Subject{})
			switch {
			case x.Name == "good" && err != nil:
				t.Errorf("%s: it stops another story: %v", c.to, err)
			case x.Name == "bad" && (err == nil || !strings.HasPrefix(err.Error(), "scenarios/suite/"+c.want)):
				t.Errorf("%s: %v\nwant %s", c.to, err, c.want)
			case x.Name == "bad" && !strings.Contains(c.want, ".yaml: ") && !strings.HasSuffix(err.Error(), "^"):
				t.Errorf("%s: no caret: %v", c.to, err)
			}
		}
	}
}

// TestFilesAreYAML: editors read them as such, and so do people.
func TestFilesAreYAML(t *testing.T) {
	t.Parallel()
	for _, x := range stories.All() {
		keys, err := scenarios.ReadParams([]byte(x.Text), x.Name+".yaml")
		if err != nil {
			t.Error(err)
		} else if keys.Keys()[0] != "name" {
			t.Errorf("%s: it begins with %s, not with its name", x.Name, keys.Keys()[0])
		}
	}
}
