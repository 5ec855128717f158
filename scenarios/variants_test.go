package scenarios

import (
	"bytes"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

// bare returns a scenario without its source locations, for comparison; parameters are compared as text.
func bare(s Scenario) any {
	s.src, s.root, s.File, s.Text, s.Same = nil, nil, "", nil, ""
	var params []string
	take := func(p *Params) {
		params = append(params, p.String())
		*p = Params{}
	}
	take(&s.Backend.Params)
	take(&s.Workload.Params)
	take(&s.Workload.Resource.Params)
	s.Chaos = append([]Injection(nil), s.Chaos...)
	for i := range s.Chaos {
		take(&s.Chaos[i].Params)
	}
	if s.Random != nil {
		r := *s.Random
		r.Faults = append([]RandomFault(nil), r.Faults...)
		for i := range r.Faults {
			take(&r.Faults[i].Params)
		}
		s.Random = &r
	}
	s.Steps = append([]Step(nil), s.Steps...)
	for i := range s.Steps {
		take(&s.Steps[i].Params)
		s.Steps[i].Line = 0
	}
	return []any{s, params}
}

func sameAfterText(t *testing.T, s Scenario) {
	t.Helper()
	again, err := Parse(s.Text, "text")
	if err != nil {
		t.Errorf("%s: its text is refused: %v\n%s", s.Name, err, s.Text)
		return
	}
	if !reflect.DeepEqual(bare(s), bare(again)) {
		t.Errorf("%s: its text says something else:\n%+v\n%+v\n%s", s.Name, bare(s), bare(again), s.Text)
	}
	if emitted := emit(s.root); !bytes.Equal(emitted, emit(again.root)) {
		t.Errorf("%s: %s\nis not\n%s", s.Name, emitted, emit(again.root))
	}
}

func TestEmbeddedScenarios(t *testing.T) {
	all, err := catalog()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, s := range all {
		if seen[s.Name] {
			t.Errorf("two scenarios are called %s", s.Name)
		}
		seen[s.Name] = true
		if s.Source == "" || len(s.Claim) < 40 {
			t.Errorf("%s: a scenario that comes with lockquake says what it shows, and where that comes from", s.Name)
		}
		if !strings.HasPrefix(s.Name+".yaml", strings.TrimSuffix(filepath.Base(s.File), ".yaml")) {
			t.Errorf("%s lies in %s", s.Name, s.File)
		}
		named := false
		for _, e := range s.Expect {
			named = named || e.Name != Judged
		}
		if !named {
			t.Errorf("%s expects nothing", s.Name)
		}
		if bytes.Contains(s.Text, []byte("twins:")) {
			t.Errorf("%s: twins in its text", s.Name)
		}
		sameAfterText(t, s)
	}
	for _, name := range []string{
		"etcd-healthy", "redis-healthy", "memory-healthy", "etcd-holder-pause", "etcd-holder-pause-fenced", "redis-holder-pause",
		"redis-restart-amnesia", "sentinel-healthy", "rediscluster-healthy",
	} {
		if !seen[name] {
			t.Errorf("%s is missing", name)
		}
	}
}

// The demo has 75 s for its three runs, start-up and reports included.
func TestDemoIsShort(t *testing.T) {
	var sum time.Duration
	for _, name := range []string{"etcd-holder-pause", "etcd-holder-pause-fenced"} {
		list, err := Load(name)
		if err != nil {
			t.Fatal(err)
		}
		s := list[0]
		sum += s.Run.For + s.Run.Settle
		in := s.Chaos[0]
		if second := in.At + in.Every + in.For; second+time.Second > s.Run.For {
			t.Errorf("%s: the second pause ends at %s, less than a second before the end (%s)", name, second, s.Run.For)
		}
		if in.For < 2*s.Backend.TTL {
			t.Errorf("%s: a pause of %s hardly outlives a lease of %s", name, in.For, s.Backend.TTL)
		}
	}
	if sum > 40*time.Second {
		t.Errorf("the demo's schedules take %s", sum)
	}
}

func TestTwinChangesOnlyWhatItSays(t *testing.T) {
	story, err := Load("etcd-holder-pause")
	if err != nil {
		t.Fatal(err)
	}
	twin, err := Load("etcd-holder-pause-fenced")
	if err != nil {
		t.Fatal(err)
	}
	a, b := story[0], twin[0]
	if a.Workload.Resource.Guard != "none" || b.Workload.Resource.Guard != "fence" {
		t.Errorf("guards %s and %s", a.Workload.Resource.Guard, b.Workload.Resource.Guard)
	}
	b.Workload.Resource.Guard = "none"
	b.Name, b.Claim, b.Expect = a.Name, a.Claim, a.Expect
	if !reflect.DeepEqual(bare(a), bare(b)) {
		t.Errorf("they differ elsewhere:\n%+v\n%+v", bare(a), bare(b))
	}
	amnesia, err := Load("redis-restart-amnesia*")
	if err != nil {
		t.Fatal(err)
	}
	if len(amnesia[1].Steps) == len(amnesia[0].Steps) || amnesia[1].Backend.Params.String() != "persistence: always" {
		t.Errorf("steps or settings were not replaced: %s", amnesia[1].Text)
	}
}

func TestWith(t *testing.T) {
	list, err := Load("etcd-holder-pause")
	if err != nil {
		t.Fatal(err)
	}
	s := list[0]
	before := bare(s)
	got, err := s.With([]string{
		"backend.ttl=3s", "chaos.0.for=5s", "workload.resource.guard=fence", `expect.double_grants=">0"`, "expect.stale_writes=>=2",
		"expect.lost_updates=0", "workload.hold=7ms", "workload.retry.delay=1ms", "claim=now: something else", "run.seed=7", "workload.check=signal",
	})
	if err != nil {
		t.Fatal(err)
	}
	if got.Backend.TTL != 3*time.Second || got.Chaos[0].For != 5*time.Second || got.Workload.Resource.Guard != "fence" ||
		got.Run.Seed != 7 || got.Workload.Check != "signal" || got.Claim != "now: something else" {
		t.Errorf("%s", got.Text)
	}
	if p := got.Workload.Params.String(); p != "hold: 7ms, retry: {delay: 1ms}" {
		t.Errorf("parameters %q", p)
	}
	byName := map[string]string{}
	for _, e := range got.Expect {
		if byName[e.Name] != "" {
			t.Errorf("%s is expected twice", e.Name)
		}
		byName[e.Name] = e.Text
	}
	want := map[string]string{
		"double_grants": ">0", "overlapping_holds": ">0", "stale_writes": ">=2", "lost_updates": "0",
	}
	if !reflect.DeepEqual(byName, want) {
		t.Errorf("expect %v, want %v", byName, want)
	}
	sameAfterText(t, got)
	if !reflect.DeepEqual(before, bare(s)) {
		t.Error("the scenario itself was changed")
	}
	again, err := got.With([]string{"backend.ttl=4s"})
	if err != nil || again.Backend.TTL != 4*time.Second || again.Run.Seed != 7 {
		t.Errorf("a second time: %v, %s", err, again.Text)
	}
	// A scenario built by hand has only its text.
	if byHand, err := (Scenario{Text: got.Text}).With([]string{"run.seed=9"}); err != nil || byHand.Run.Seed != 9 {
		t.Errorf("by hand: %v", err)
	}
}

func TestWithRefuses(t *testing.T) {
	list, err := Load("etcd-holder-pause-fenced")
	if err != nil {
		t.Fatal(err)
	}
	var own struct{ Hold time.Duration }
	var out strings.Builder
	for _, set := range []string{
		"backend.ttl", "=5", "backend.ttl=", "backend.ttl=5", "bakend.ttl=5s", "workload.resource.guard=fenc", "workload.clients=many",
		"chaos.1.for=3s", "chaos.x.for=3s", "chaos.0.for=9s", "steps.0.do=acquire", "backend.use.x=3", "twins.x.claim=y", "name=other", "run.sed=3",
		"expect.double_grants=none", "backend={use: etcd", "run.for=1s", "chaos=[{use: kill}]", "workload.hold=50", "workload.hlod=50ms",
	} {
		s, err := list[0].With([]string{"run.settle=2s", set})
		if err == nil {
			err = s.Workload.Params.Decode(&own)
		}
		if err == nil {
			t.Errorf("%s was taken", set)
			continue
		}
		out.WriteString("=== " + set + "\n" + err.Error() + "\n")
	}
	golden(t, "set.golden", out.String())
}

func TestTextOfMainKeepsCommentsAndDropsTwins(t *testing.T) {
	s, err := Parse([]byte("# why\nname: small # here\nclaim: c\nbackend: {use: memory}\ntwins:\n  a:\n    claim: z\n    expect: {}\n# after\nworkload: {use: counter}\n"), "x.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if got := string(s.Text); got != "# why\nname: small # here\nclaim: c\nbackend: {use: memory}\nworkload: {use: counter}\n" {
		t.Errorf("text %q", got)
	}
	sameAfterText(t, s)
}

func TestExpectationHolds(t *testing.T) {
	for _, c := range []struct {
		text  string
		value float64
		want  bool
	}{
		{"0", 0, true},
		{"0", 1, false},
		{"=3", 3, true},
		{">0", 0, false},
		{">0", 1, true},
		{">=5", 5, true},
		{"<5", 5, false},
		{"<=5", 5, true},
		{"<1s", 999, true},
		{"<1s", 1000, false},
		{">5%", 5.5, true},
	} {
		e, ok := ParseExpectation("x", c.text)
		if !ok || e.Holds(c.value) != c.want {
			t.Errorf("%v %s: %t (read: %t), want %t", c.value, c.text, e.Holds(c.value), ok, c.want)
		}
	}
}

// TestTwinsHaveDifferentOutcomes: no run can meet all expectations of both a story and its twin, which reveals a
// weakened expect. If both claims have the same outcome, the twin says why.
func TestTwinsHaveDifferentOutcomes(t *testing.T) {
	all, err := catalog()
	if err != nil {
		t.Fatal(err)
	}
	var story Scenario
	for _, s := range all {
		if story.File != s.File {
			story = s
			continue
		}
		switch differs := differ(story, s); {
		case s.Same == "" && !differs:
			t.Errorf("a run may be all that %s and %s expect: was one of them weakened? If their claims are of the same outcome, `same` should say why", s.Name, story.Name)
		case s.Same != "" && differs:
			t.Errorf("%s expects something else than %s; it should not say `same: %s`", s.Name, story.Name, s.Same)
		}
	}
}

// elsewhere maps each story without a twin to a scenario in another file with a different outcome.
var elsewhere = map[string]string{
	"etcd-clock-jump":                "redis-clock-jump",
	"etcd-lease-expiry":              "late-packet-etcd",
	"etcd-slow-network":              "late-packet-etcd",
	"postgres-holder-pause-advisory": "postgres-holder-pause",
	"postgres-session-end":           "postgres-holder-pause-advisory",
	"redis-holder-pause":             "etcd-holder-pause-fenced",
	"rediscluster-holder-pause":      "etcd-holder-pause-fenced",
	"redlock-holder-pause":           "etcd-holder-pause-fenced",
	"redlock-slow-link":              "redlock-clock-jump",
	"sentinel-holder-pause":          "etcd-holder-pause-fenced",
	"session-check":                  "etcd-holder-pause-fenced",
	"zookeeper-clock-jump":           "redis-clock-jump",
	"zookeeper-session-expiry":       "late-packet-zookeeper",
}

// TestEveryStoryHasATwin: each story is shown beside a variant that makes the difference.
func TestEveryStoryHasATwin(t *testing.T) {
	all, err := catalog()
	if err != nil {
		t.Fatal(err)
	}
	byName, forms := map[string]Scenario{}, map[string]int{}
	for _, s := range all {
		byName[s.Name] = s
		forms[s.File]++
	}
	for file, n := range forms {
		name, isStory := strings.CutPrefix(strings.TrimSuffix(file, ".yaml"), "stories/")
		other, listed := byName[elsewhere[name]]
		switch {
		case isStory && (n > 1) == listed:
			t.Errorf("%s has %d twins, and elsewhere is %q; it should have a twin, or be in the list elsewhere", name, n-1, elsewhere[name])
		case listed && !differ(byName[name], other):
			t.Errorf("a run may be all that %s and %s expect", name, other.Name)
		}
	}
}

// differ reports whether some count or measure has no value that meets both expectations.
func differ(a, b Scenario) bool {
	for _, x := range a.Expect {
		for _, y := range b.Expect {
			if x.Name != y.Name || x.Name == Judged || x.Unit != y.Unit {
				continue
			}
			both := false
			for _, v := range []float64{0, 1, x.Value, x.Value + 1, x.Value - 1, y.Value, y.Value + 1, y.Value - 1} {
				both = both || v >= 0 && x.Holds(v) && y.Holds(v)
			}
			if !both {
				return true
			}
		}
	}
	return false
}
