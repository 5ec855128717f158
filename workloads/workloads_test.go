package workloads

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goccy/go-yaml"
	"go.uber.org/goleak"

	"github.com/lockquake/lockquake/internal/clock"
)

// Nothing is late in a bubble of testing/synctest, so the tests of schedules are exact. internal/clock tests the
// machine's own timers.
func TestMain(m *testing.M) {
	clock.Simulate()
	goleak.VerifyTestMain(m)
}

// kindOf returns the named workload.
func kindOf(t *testing.T, name string) Kind {
	t.Helper()
	i := slices.IndexFunc(All(), func(k Kind) bool { return k.Name == name })
	if i < 0 {
		t.Fatalf("no workload %s", name)
	}
	return All()[i]
}

func fromYAML(text string) func(any) error {
	return func(into any) error { return yaml.UnmarshalWithOptions([]byte(text), into, yaml.Strict()) }
}

func fromJSON(b []byte) func(any) error {
	return func(into any) error {
		d := json.NewDecoder(bytes.NewReader(b))
		d.DisallowUnknownFields()
		return d.Decode(into)
	}
}

// parameters holds the parameters of each workload as in a scenario.
var parameters = map[string]string{
	"acquire-release": "{locks: 7, hold: 5ms, rate: 200, arrivals: uniform}",
	"counter":         "{locks: 3, hold: 50ms, think: 1s}",
	"guarded-set":     "{locks: 2, hold: 2s, spread: true}",
	"inventory":       "{locks: 2, stock: 7, hold: 5ms}",
	"booking":         "{seats: 9, hold: 5ms, think: 1ms}",
	"balance":         "{accounts: 3, amount: 5, hold: 5ms}",
	"hold-renew":      "{hold: 9s, touch: 1s}",
	"stampede":        "{every: 2s, hold: 5ms}",
	"spread":          "{locks: 50, pick: zipf, skew: 1.5}",
	"once":            "{every: 2s, hold: 5ms, jobs: 20}",
}

func TestParametersTravel(t *testing.T) {
	for name, text := range parameters {
		k := kindOf(t, name)
		w, err := k.New(fromYAML(text))
		if err != nil {
			t.Fatal(err)
		}
		sent, err := json.Marshal(w)
		if err != nil {
			t.Fatal(err)
		}
		got, err := k.New(fromJSON(sent))
		if err != nil {
			t.Fatalf("%s: %v", sent, err)
		}
		again, err := json.Marshal(got)
		if err != nil || !bytes.Equal(sent, again) {
			t.Errorf("%s became %s (%v)", sent, again, err)
		}
		if got.NeedsResource() != (k.Increments || k.Writes != "") {
			t.Errorf("%s: needs a resource: %v", name, got.NeedsResource())
		}
	}
}

type refusal struct{ workload, text, want string }

// refused lists invalid parameters, at least one per workload.
var refused = []refusal{
	{"acquire-release", "{locks: 0}", "locks is 0: want 1 to 65536"},
	{"acquire-release", "{hold: -1s}", "hold is -1s"},
	{"acquire-release", "{shared: 50}", "shared is 50"},
	{"acquire-release", "{think: -1s}", "think is -1s"},
	{"acquire-release", "{rate: -5}", "rate is -5"},
	{"acquire-release", "{rate: .nan}", "rate is NaN"},
	{"acquire-release", "{rate: 5, arrivals: bursts}", `arrivals is "bursts": want poisson or uniform`},
	{"acquire-release", "{rate: 5, think: 1s}", "omit one of them"},
	{"acquire-release", "{own_locks: true, locks: 4}", "omit locks"},
	{"acquire-release", "{hold: 50}", "time.Duration"},
	{"acquire-release", "{holt: 50ms}", "unknown field"},
	{"counter", "{rate: 5}", "unknown field"},
	{"counter", "{locks: 70000}", "locks is 70000"},
	{"guarded-set", "{locks: 0}", "locks is 0"},
	{"guarded-set", "{stock: 5}", "unknown field"},
	{"inventory", "{stock: 0}", "stock is 0: want 1 unit or more"},
	{"inventory", "{hold: -1s}", "hold is -1s"},
	{"booking", "{seats: 0}", "seats is 0: want 1 to 65536"},
	{"booking", "{locks: 5}", "unknown field"},
	{"balance", "{accounts: 1}", "accounts is 1: want 2 to 65536"},
	{"balance", "{amount: 0}", "amount is 0"},
	{"hold-renew", "{touch: -1s}", "touch is -1s"},
	{"stampede", "{every: 1ms}", "every is 1ms: want 10ms or more"},
	{"stampede", "{hold: -1s}", "hold is -1s"},
	{"once", "{every: 1ms}", "every is 1ms: want 10ms or more"},
	{"once", "{jobs: 0}", "jobs is 0: want 1 to 65536"},
	{"spread", "{pick: best}", `pick is "best": want uniform or zipf`},
	{"spread", "{pick: zipf, skew: 1}", "skew is 1: want an exponent above 1"},
}

func TestParametersRefused(t *testing.T) {
	for _, c := range refused {
		if _, err := kindOf(t, c.workload).New(fromYAML(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %s: got %v, want an error with %q", c.workload, c.text, err, c.want)
		}
	}
}

// TestEveryWorkloadIsInTheTables looks up each workload in the tables of these tests and of the docs.
func TestEveryWorkloadIsInTheTables(t *testing.T) {
	for _, k := range All() {
		if parameters[k.Name] == "" {
			t.Errorf("%s has no parameters that travel", k.Name)
		}
		if !slices.ContainsFunc(refused, func(c refusal) bool { return c.workload == k.Name }) {
			t.Errorf("%s has no parameters that are refused", k.Name)
		}
		for page, form := range map[string]string{"../docs/scenarios.md": "\n| `%s` | ", "../README.md": "`%s`"} {
			text, err := os.ReadFile(page)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(text), fmt.Sprintf(form, k.Name)) {
				t.Errorf("%s does not name %s", page, k.Name)
			}
		}
	}
}

// world is a lock service without latency, with its users.
type world struct {
	mu       sync.Mutex
	values   map[int]int64
	intended []time.Time
	begun    []time.Time
	locks    map[int]int
	shared   int
	fail     error
}

type user struct {
	*world
	id     Identity
	random *rand.Rand
	cost   time.Duration // of an acquire
}

func (u *user) Identity() Identity { return u.id }
func (u *user) Random() *rand.Rand { return u.random }

func (u *user) AcquireShared(ctx context.Context, lock int, intended time.Time) (Hold, error) {
	u.mu.Lock()
	u.shared++
	u.mu.Unlock()
	return u.Acquire(ctx, lock, intended)
}

func (u *user) Acquire(_ context.Context, lock int, intended time.Time) (Hold, error) {
	u.mu.Lock()
	u.intended = append(u.intended, intended)
	u.begun = append(u.begun, time.Now())
	u.locks[lock]++
	u.mu.Unlock()
	time.Sleep(u.cost)
	if u.fail != nil {
		return nil, u.fail
	}
	return &hold{u, lock}, nil
}

type hold struct {
	u    *user
	lock int
}

func (h *hold) Read(context.Context) (int64, error) {
	h.u.mu.Lock()
	defer h.u.mu.Unlock()
	return h.u.values[h.lock], nil
}

func (h *hold) Write(_ context.Context, v int64) error {
	h.u.mu.Lock()
	defer h.u.mu.Unlock()
	h.u.values[h.lock] = v
	return nil
}

func (h *hold) Release(context.Context) error { return nil }

// live runs a workload with some users in a bubble of fake time.
func live(t *testing.T, name, text string, users int, cost, lasts time.Duration, fail error) (*world, Workload) {
	t.Helper()
	wl, err := kindOf(t, name).New(fromYAML(text))
	if err != nil {
		t.Fatal(err)
	}
	w := &world{values: map[int]int64{}, locks: map[int]int{}, fail: fail}
	ctx, cancel := context.WithTimeout(t.Context(), lasts)
	defer cancel()
	var wg sync.WaitGroup
	for i := range users {
		u := &user{world: w, id: Identity{i, users, users}, random: rand.New(rand.NewPCG(1, uint64(i))), cost: cost}
		wg.Go(func() {
			if err := wl.Run(ctx, u); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	return w, wl
}

func TestClosedLoops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := live(t, "acquire-release", "{hold: 10ms, think: 5ms}", 1, 5*time.Millisecond, 2*time.Second, nil)
		if n := len(w.begun); n < 99 || n > 101 {
			t.Errorf("%d cycles of 20 ms in 2 s", n)
		}
		for _, at := range w.intended {
			if !at.IsZero() {
				t.Fatal("a closed loop has intended times")
			}
		}
		w, _ = live(t, "counter", "{hold: 10ms, locks: 4}", 1, 0, time.Second, nil)
		sum := int64(0)
		for _, v := range w.values {
			sum += v
		}
		if sum != int64(len(w.begun)) || sum < 99 || sum > 101 || len(w.values) != 4 {
			t.Errorf("%d cycles of 10 ms in 1 s counted to %d on %d locks", len(w.begun), sum, len(w.values))
		}
		w, _ = live(t, "acquire-release", "{own_locks: true, hold: 1ms}", 5, 0, 50*time.Millisecond, nil)
		if len(w.locks) != 5 || w.locks[4] == 0 {
			t.Errorf("5 users with their own locks used %v", w.locks)
		}
	})
}

func TestSharedMode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, wl := live(t, "acquire-release", "{hold: 1ms, shared: 0.25}", 1, 0, 2*time.Second, nil)
		if n := len(w.begun); w.shared < n/5 || w.shared > n*3/10 || !wl.(Sharing).Shares() {
			t.Errorf("%d of %d acquires were shared, a quarter was asked for", w.shared, n)
		}
		if w, wl = live(t, "acquire-release", "{hold: 1ms}", 1, 0, time.Second, nil); w.shared != 0 || wl.(Sharing).Shares() {
			t.Errorf("%d acquires were shared unasked", w.shared)
		}
	})
}

func TestGivesBackAtOnce(t *testing.T) {
	for params, want := range map[string]bool{"{}": true, "{rate: 10}": true, "{hold: 1ns}": false} {
		if w, err := acquireRelease.New(fromYAML(params)); err != nil || w.(Brief).GivesBackAtOnce() != want {
			t.Errorf("acquire-release %s: %v; want %v", params, err, want)
		}
	}
}

func TestFailingServiceIsNotHammered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := live(t, "acquire-release", "{}", 1, 0, time.Second, errors.New("refused"))
		if n := len(w.begun); n < 70 || n > 150 {
			t.Errorf("%d tries in a second", n)
		}
	})
}

// Free users take all arrivals in order, at the requested rate, and each begins at its time.
func TestOpenLoop(t *testing.T) {
	for arrivals, most := range map[string]int{Poisson: 600, Uniform: 501} {
		synctest.Test(t, func(t *testing.T) {
			w, wl := live(t, "acquire-release", "{rate: 1000, arrivals: "+arrivals+"}", 20, time.Millisecond, 500*time.Millisecond, nil)
			if n := len(w.begun); n < 1000-most || n > most {
				t.Errorf("%s: %d of 500 arrivals", arrivals, n)
			}
			for i, at := range w.intended {
				if !w.begun[i].Equal(at) {
					t.Fatalf("%s: arrival %d was meant for %v and began at %v", arrivals, i, at, w.begun[i])
				}
			}
			if n := wl.(Pacer).Unstarted(0); n > 0 {
				t.Errorf("%s: %d arrivals were not started though users were free", arrivals, n)
			}
		})
	}
}

// A single user cannot keep up: later arrivals keep their intended times, and the arrivals left over are counted.
func TestOpenLoopOverload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, wl := live(t, "acquire-release", "{rate: 1000, arrivals: uniform}", 1, 10*time.Millisecond, 500*time.Millisecond, nil)
		last := len(w.begun) - 1
		if late := w.begun[last].Sub(w.intended[last]); late < 430*time.Millisecond || late > 450*time.Millisecond {
			t.Errorf("the last of %d cycles began %v after it was meant to; it should be about 440 ms", last+1, late)
		}
		end := w.intended[0].Add(500 * time.Millisecond)
		n := wl.(Pacer).Unstarted(clock.Of(end))
		if total := int(n) + last + 1; total < 500 || total > 501 {
			t.Errorf("%d begun and %d unstarted arrivals; there were 500", last+1, n)
		}
	})
}
