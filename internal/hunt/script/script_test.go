package script

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/backends/all"
	"github.com/lockquake/lockquake/backends/listed"
	"github.com/lockquake/lockquake/chaos"
	faults "github.com/lockquake/lockquake/chaos/all"
	"github.com/lockquake/lockquake/internal/cluster"
	"github.com/lockquake/lockquake/internal/engine"
	"github.com/lockquake/lockquake/internal/node"
	"github.com/lockquake/lockquake/internal/seed"
	"github.com/lockquake/lockquake/results/checkers"
	"github.com/lockquake/lockquake/scenarios"
	"github.com/lockquake/lockquake/workloads"
	resources "github.com/lockquake/lockquake/workloads/resource/all"
)

// able is a provider that supports everything, and starts nothing.
type able struct{}

func (able) Name() string                                       { return "able" }
func (able) Offers(chaos.Capability, node.Role) error           { return nil }
func (able) Prepares(node.Preparation, node.Spec, string) error { return nil }
func (able) Open(context.Context, cluster.Request) (*cluster.Cluster, error) {
	panic("nothing is started")
}

// request returns the request of a hunt's runs, on a provider that supports everything.
func request(t *testing.T, b listed.Backend, lock string, ttl time.Duration) engine.Request {
	t.Helper()
	text := fmt.Sprintf("name: hunt-%s\nclaim: Nothing is known yet.\nbackend: {use: %s, lock: %s, ttl: %s}\nworkload: {use: counter, resource: {use: register, guard: none}}\nrun: {seed: 1}\nexpect: {judged: \">=1\"}\n",
		lock, b.Name, lock, ttl)
	sc, err := scenarios.Parse([]byte(text), "hunt.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return engine.Request{Scenario: sc, Provider: able{}, Catalog: engine.Catalog{
		Backends: all.All(), Workloads: workloads.All(), Faults: faults.Kinds(), Resources: resources.All(), Checkers: checkers.All(),
	}}
}

// spaces calls f with the space of one lock of each kind. Locks of a backend that offer the same, and stop at as many
// points, have the same scripts except for names. With LOCKQUAKE_HUNT_ALL set it calls f with the space of every
// lock.
func spaces(t *testing.T, f func(t *testing.T, s Space)) {
	type kind struct {
		backend string
		offers  backends.Offers
		points  bool
	}
	seen := map[kind]bool{}
	for _, b := range all.All() {
		for _, l := range b.Locks {
			o := l.Offers
			k := kind{b.Name, backends.Offers{Renewal: o.Renewal, Shared: o.Shared, Expires: o.Expires}, len(l.Points) > 0}
			if seen[k] && os.Getenv("LOCKQUAKE_HUNT_ALL") == "" {
				continue
			}
			seen[k] = true
			t.Run(b.Name+"/"+l.Name, func(t *testing.T) {
				t.Parallel()
				s, _, err := NewSpace(t.Context(), Asked{Request: request(t, b, l.Name, max(2*time.Second, l.MinTTL))})
				if err != nil {
					t.Fatal(err)
				}
				f(t, s)
			})
		}
	}
}

// shrink makes a script smaller until nothing is left. All reductions must be runnable, and smaller.
func shrink(t *testing.T, s Space, x Script, r *rand.Rand) {
	t.Helper()
	for steps := 0; ; steps++ {
		list := s.Reductions(x)
		if len(list) == 0 {
			break
		}
		for range 3 {
			y := list[r.IntN(len(list))]
			if err := s.Check(y); err != nil || !s.Size(y).Less(s.Size(x)) {
				t.Fatalf("%+v (%+v) is no reduction of %+v (%+v): %v", y, s.Size(y), x, s.Size(x), err)
			}
		}
		x = list[r.IntN((len(list)+2)/3)]
	}
}

// TestEveryScriptCanBeRun draws and mutates scripts of every lock: a run accepts each of them.
func TestEveryScriptCanBeRun(t *testing.T) {
	t.Parallel()
	spaces(t, func(t *testing.T, s Space) {
		var known []Script
		for n := range 3 {
			x := s.Draw(seed.Rand(uint64(n), "draw"))
			if err := s.Check(x); err != nil {
				t.Fatalf("seed %d: %v\n%+v", n, err, x)
			}
			if again := s.Draw(seed.Rand(uint64(n), "draw")); !reflect.DeepEqual(again, x) {
				t.Fatalf("seed %d draws %+v, then %+v", n, x, again)
			}
			text, err := json.Marshal(x)
			var back Script
			if err != nil || json.Unmarshal(text, &back) != nil || !reflect.DeepEqual(back, x) {
				t.Fatalf("%+v was read back as %+v", x, back)
			}
			y := s.Mutate(seed.Rand(uint64(n), "mutate"), x, known)
			if err := s.Check(y); err != nil || reflect.DeepEqual(x, y) {
				t.Fatalf("seed %d: %v\n%+v\nwas made of\n%+v", n, err, y, x)
			}
			known = append(known, y)
		}
		shrink(t, s, known[0], seed.Rand(1, "shrink"))
	})
}

// spaceOf returns the space of a hunt with keys of its base set.
func spaceOf(t *testing.T, backend, lock string, a Asked, sets ...string) Space {
	t.Helper()
	i := slices.IndexFunc(all.All(), func(b listed.Backend) bool { return b.Name == backend })
	a.Request = request(t, all.All()[i], lock, time.Second)
	var err error
	if a.Request.Scenario, err = a.Request.Scenario.With(sets); err != nil {
		t.Fatal(err)
	}
	s, _, err := NewSpace(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestTTLs: a hunt has those that the lock supports, on servers that can be kept.
func TestTTLs(t *testing.T) {
	t.Parallel()
	delayed := "backend.restart=delayed" // by the TTL
	for _, c := range []struct {
		backend, lock string
		asked         Asked
		sets          []string
		want          []time.Duration
	}{
		{"redis", "set-px-lua", Asked{}, nil, []time.Duration{500 * time.Millisecond, time.Second, 2 * time.Second}},
		{"redis", "set-px-lua", Asked{TTL: true}, nil, nil},
		{"redis", "set-px-lua", Asked{}, []string{delayed}, []time.Duration{time.Second}},
	} {
		if got := spaceOf(t, c.backend, c.lock, c.asked, c.sets...).TTLs; !slices.Equal(got, c.want) {
			t.Errorf("%s/%s with %v, %v: %v, want %v", c.backend, c.lock, c.asked.TTL, c.sets, got, c.want)
		}
	}
}

// TestLoads: only a goal that is about waiting makes loads long.
func TestLoads(t *testing.T) {
	t.Parallel()
	for _, patient := range []bool{false, true} {
		s := spaceOf(t, "redis", "set-px-lua", Asked{Patient: patient, TTL: true}, "backend.ttl=4s")
		low, high := bounds(s.TTL)
		long := 0
		for n := range uint64(40) {
			x := s.Draw(seed.Rand(n, "draw"))
			if x.For < low || x.For > max(high, s.Patience) {
				t.Fatalf("a load of %v", x.For)
			}
			long += count(x.For > high)
		}
		if patient != (s.Patience > high && long > 0) {
			t.Errorf("patient %t: %d of 40 loads are longer than %v; patience %v", patient, long, high, s.Patience)
		}
	}
}

// TestFaultsAreHealedAtTheEnd: how much longer they were to last makes no difference.
func TestFaultsAreHealedAtTheEnd(t *testing.T) {
	t.Parallel()
	s := spaceOf(t, "redis", "set-px-lua", Asked{})
	x := Script{For: 2 * time.Second, Crowd: Crowd{Clients: 1, Users: 2, Locks: 1}, Faults: []Injection{
		{Use: "pause", On: "clients", At: time.Second, For: 900 * time.Millisecond},
		{Use: "pause", On: "clients", At: time.Second, For: 1100 * time.Millisecond},
	}}
	got := s.normal(x).Faults
	if got[0].For != x.Faults[0].For || got[1].For != 0 {
		t.Errorf("of %+v are left %+v", x.Faults, got)
	}
}

// TestScriptsAreReadBack: a script that is written and read again is unchanged.
func TestScriptsAreReadBack(t *testing.T) {
	t.Parallel()
	spaces(t, func(t *testing.T, s Space) {
		for n := range 5 {
			asked := n%2 > 0
			x := s.Draw(seed.Rand(uint64(n), "draw"))
			sc, err := s.Scenario(x, asked)
			if err != nil {
				t.Fatal(err)
			}
			y, err := s.Read(sc)
			if err != nil {
				t.Fatalf("%v\n%s", err, sc.Text)
			}
			if len(x.users()) < len(x.Visits) {
				continue // the scenario does not show which visit a release belongs to
			}
			if again, err := s.Scenario(y, asked); err != nil || string(again.Text) != string(sc.Text) {
				t.Fatalf("%v\n%s\nwas read as %+v\n%s", err, sc.Text, y, again.Text)
			}
		}
	})
}

// TestShippedScenariosAreRead: a hunt can begin with any of them that has a schedule or steps.
func TestShippedScenariosAreRead(t *testing.T) {
	t.Parallel()
	read := 0
	for _, l := range scenarios.Names() {
		list, err := scenarios.Load(l.Path)
		if err != nil {
			t.Fatal(err)
		}
		sc := list[0]
		i := slices.IndexFunc(all.All(), func(b listed.Backend) bool { return b.Name == sc.Backend.Use })
		if i < 0 || sc.Random != nil {
			continue
		}
		r := request(t, all.All()[i], sc.Backend.Lock, sc.Backend.TTL)
		r.Scenario = sc
		s := Space{Base: sc, TTL: sc.Backend.TTL, Shortest: time.Second, Longest: time.Minute, request: r, kinds: map[string]chaos.Kind{}}
		for _, k := range faults.Kinds() {
			s.kinds[k.Name] = k
		}
		if _, err := s.Read(sc); err != nil {
			t.Logf("%s: %v", l.Path, err)
			continue
		}
		read++
	}
	if read < 100 {
		t.Errorf("%d were read", read)
	}
}
