package chaos

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockquake/lockquake/internal/seed"
)

var (
	threeServers = []string{"etcd-1", "etcd-2", "etcd-3"}
	twoClients   = []string{"client-1", "client-2"}
)

func selectors(t *testing.T, texts ...string) []Selector {
	t.Helper()
	var out []Selector
	for _, text := range texts {
		s, err := ParseSelector(text, slices.Concat(threeServers, twoClients))
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, s)
	}
	return out
}

func randomSchedule(t *testing.T, p Promise) Random {
	return Random{
		Faults: []Drawable{
			{On: selectors(t, "one", "leader", "holder"), Shortest: time.Second, Longest: 4 * time.Second, Lasting: true},
			{On: selectors(t, "one")},
			{On: selectors(t, "minority"), Shortest: time.Second, Longest: time.Second, Lasting: true, Linked: true},
		},
		MeanGap: 2 * time.Second, Promise: p, Servers: threeServers, Clients: twoClients,
	}
}

func showDrawn(list []Drawn) string {
	var b strings.Builder
	for _, d := range list {
		fmt.Fprintf(&b, "%d@%s/%s:%s ", d.Fault, d.At, d.For, d.On)
	}
	return strings.TrimSpace(b.String())
}

// Golden: what a seed draws must not change from version to version, nor from machine to machine.
func TestDrawIsTheSameEverywhere(t *testing.T) {
	for _, c := range []struct {
		promise Promise
		want    string
	}{
		{Promise{Serial: true, Majority: true}, "0@337ms/2.541s:leader 0@10.504s/3.502s:leader 1@14.527s/0s:etcd-1 0@15.659s/3.821s:holder"},
		{Promise{Apart: true, Majority: true}, "0@337ms/2.541s:leader 0@7.963s/3.502s:leader 1@8.484s/0s:etcd-1 0@9.616s/3.821s:holder 1@17.521s/0s:etcd-1"},
		{Promise{}, "0@337ms/2.541s:leader 0@7.963s/3.502s:leader 1@8.484s/0s:etcd-1 0@9.616s/3.821s:holder 1@17.521s/0s:etcd-1"},
	} {
		for range 2 {
			got, err := randomSchedule(t, c.promise).Draw(20*time.Second, 42)
			if err != nil || showDrawn(got) != c.want {
				t.Errorf("%+v: %v\n%s\nwant\n%s", c.promise, err, showDrawn(got), c.want)
			}
		}
	}
}

func TestDrawKeepsPromises(t *testing.T) {
	const run = time.Minute
	overlapped, many := 0, 0
	for s := range uint64(200) {
		for _, p := range []Promise{{Serial: true, Majority: true}, {Apart: true, Majority: true}, {Apart: true}, {}} {
			r := randomSchedule(t, p)
			list, err := r.Draw(run, s)
			if err != nil || len(list) == 0 {
				t.Fatalf("seed %d, %+v: %d injections, %v", s, p, len(list), err)
			}
			many += len(list)
			for i, d := range list {
				if d.At <= 0 || d.At+d.For > run || d.At%time.Millisecond != 0 || d.For%time.Millisecond != 0 {
					t.Errorf("seed %d, %+v: %s does not lie within the run in whole ms", s, p, showDrawn(list[i:i+1]))
				}
				if f := r.Faults[d.Fault]; f.Lasting != (d.For > 0) || f.Lasting && (d.For < f.Shortest || d.For > f.Longest) {
					t.Errorf("seed %d: %s lasts too long or not long enough", s, showDrawn(list[i:i+1]))
				}
				down := d.On.Named()
				for _, b := range list[:i] {
					if b.At+b.For <= d.At {
						continue
					}
					overlapped++
					down = append(down, b.On.Named()...)
					if p.Serial || p.Apart && len(common(b.On.Named(), d.On.Named())) > 0 {
						t.Errorf("seed %d, %+v: %s overlap", s, p, showDrawn([]Drawn{b, d}))
					}
				}
				slices.Sort(down)
				if p.Majority && len(slices.Compact(down)) > 1 {
					t.Errorf("seed %d, %+v: %v are hit at %s", s, p, down, d.At)
				}
			}
		}
	}
	if overlapped < 100 || many < 1000 {
		t.Errorf("%d injections, %d pairs overlap: too few to show anything", many, overlapped)
	}
}

func TestDrawRefuses(t *testing.T) {
	t.Parallel()
	r := randomSchedule(t, Promise{Majority: true})
	r.Faults = []Drawable{{On: selectors(t, "all"), Shortest: time.Second, Longest: time.Second, Lasting: true}}
	r.Faults[0].On[0] = Selector{text: "etcd-1, etcd-2", parts: []part{{text: "etcd-1"}, {text: "etcd-2"}}}
	if _, err := r.Draw(20*time.Second, 1); err == nil || !strings.Contains(err.Error(), "no injection fits") {
		t.Errorf("two of three servers: %v", err)
	}
	r = randomSchedule(t, Promise{})
	r.MeanGap = 100 * time.Millisecond
	if _, err := r.Draw(time.Hour, 1); err == nil || !strings.Contains(err.Error(), "more than 10000") {
		t.Errorf("far too many for an hour: %v", err)
	}
	r = randomSchedule(t, Promise{Apart: true, Majority: true}) // most of them break the promise
	r.MeanGap = time.Millisecond
	if _, err := r.Draw(time.Minute, 1); err == nil || !strings.Contains(err.Error(), "more than 10000") {
		t.Errorf("60000 draws: %v", err)
	}
	r = randomSchedule(t, Promise{Serial: true})
	r.MeanGap, r.Faults[0].Shortest, r.Faults[0].Longest, r.Faults = time.Millisecond, 10*time.Hour, 10*time.Hour, r.Faults[:1]
	if _, err := r.Draw(10*time.Hour, 1); err == nil || !strings.Contains(err.Error(), "no injection fits") { // 36 million draws, a hundred times
		t.Errorf("a fault as long as the run: %v", err)
	}
	if _, err := (Random{}).Draw(time.Minute, 1); err == nil {
		t.Error("a schedule of no faults was drawn")
	}
}

// The gaps are exponential: mean and deviation are the same, and a share 1/e is longer than the mean.
func TestExponential(t *testing.T) {
	const n = 200000
	random := seed.Rand(1, "exponential")
	var sum, squares float64
	longer := 0
	for range n {
		x := exponential(time.Second, random).Seconds()
		sum, squares = sum+x, squares+x*x
		if x > 1 {
			longer++
		}
	}
	mean := sum / n
	if deviation := math.Sqrt(squares/n - mean*mean); math.Abs(mean-1) > 0.01 || math.Abs(deviation-1) > 0.02 {
		t.Errorf("mean %.4f, deviation %.4f, want 1 and 1", mean, deviation)
	}
	if share := float64(longer) / n; math.Abs(share-1/math.E) > 0.005 {
		t.Errorf("a share of %.4f is longer than the mean, want %.4f", share, 1/math.E)
	}
}

func TestReach(t *testing.T) {
	for _, c := range []struct{ name, targets, peers, want string }{
		{"a server", "etcd-1", "", "etcd-1"},
		{"a client", "client-1", "", ""},
		{"a server from the rest", "etcd-1", "etcd-2 etcd-3 client-1 client-2", "etcd-1"},
		{"two sides: the smaller one", "etcd-1 etcd-2", "etcd-3", "etcd-3"},
		{"a client from all servers is in trouble itself", "client-1", "etcd-1 etcd-2 etcd-3", ""},
		{"a client from one server", "client-1", "etcd-1", "etcd-1"},
		{"all clients from all servers", "client-1 client-2", "etcd-1 etcd-2 etcd-3", "etcd-1 etcd-2 etcd-3"},
		{"a server from a client", "etcd-1 etcd-2", "client-1", "etcd-1 etcd-2"},
		{"a client from another", "client-1", "client-2", ""},
	} {
		got := NewReach(strings.Fields(c.targets), strings.Fields(c.peers), threeServers, twoClients).Servers
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: %v, want %s", c.name, got, c.want)
		}
	}
}

func TestPromiseBroken(t *testing.T) {
	six := []string{"redis-1", "redis-2", "redis-3", "sentinel-1", "sentinel-2", "sentinel-3"}
	reach := func(names string) Reach { return NewReach(strings.Fields(names), nil, six, nil) }
	for _, c := range []struct {
		promise        Promise
		standing, next string
		broken         bool
	}{
		{Promise{}, "redis-1 redis-2", "redis-1", false},
		{Promise{Serial: true}, "redis-1", "sentinel-2", true},
		{Promise{Serial: true}, "", "redis-1", false},
		{Promise{Apart: true}, "redis-1", "redis-1", true},
		{Promise{Apart: true}, "redis-1", "redis-2", false},
		{Promise{Majority: true}, "redis-1", "redis-2", true},
		{Promise{Majority: true}, "redis-1", "redis-1", false},
		// A majority of each kind: the remaining Sentinels do not make up for it.
		{Promise{Majority: true}, "redis-1", "sentinel-1", false},
		{Promise{Majority: true}, "", "sentinel-1 sentinel-2", true},
		{Promise{Majority: true}, "redis-1 redis-2", "client-1", false},
	} {
		var standing []Reach
		if c.standing != "" {
			standing = append(standing, reach(c.standing))
		}
		if why := c.promise.Broken(six, standing, reach(c.next)); (why != "") != c.broken {
			t.Errorf("%+v, %q stands, %q comes: %q", c.promise, c.standing, c.next, why)
		}
	}
	if why := (Promise{Majority: true}).Broken([]string{"redis"}, nil, NewReach([]string{"redis"}, nil, []string{"redis"}, nil)); why == "" {
		t.Error("the only server may be hit and a majority be left")
	}
}

func TestPromiseNever(t *testing.T) {
	p := Promise{Majority: true}
	for text, never := range map[string]bool{
		"one": false, "leader": false, "holder": false, "clients": false, "minority": false, "client-1": false, "etcd-2": false,
		"majority": true, "all": true, "followers": true, "etcd-1,etcd-2": true,
	} {
		if why := p.Never(selectors(t, text)[0], threeServers, seed.Rand(1, "never")); (why != "") != never {
			t.Errorf("%s: %q", text, why)
		}
	}
}

// Settle picks what Resolve picks with the same random numbers, so that a drawn schedule and its written form hit the
// same nodes.
func TestSettle(t *testing.T) {
	var v View
	for _, name := range threeServers {
		v.Servers = append(v.Servers, bareNode(name))
	}
	v.All = v.Servers
	for _, word := range []string{"one", "minority", "majority"} {
		sel := selectors(t, word)[0]
		for s := range uint64(20) {
			v.Random = seed.Rand(s, "x")
			nodes, err := sel.Resolve(context.Background(), v)
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, n := range nodes {
				names = append(names, n.Name())
			}
			if got := sel.Settle(threeServers, seed.Rand(s, "x")); got.String() != strings.Join(names, ", ") {
				t.Errorf("%s, seed %d: settled as %s, resolved as %v", word, s, got, names)
			}
		}
	}
	for _, text := range []string{"leader", "holder(lock-2)", "followers", "etcd-2", "clients"} {
		if got := selectors(t, text)[0].Settle(threeServers, seed.Rand(1, "x")); got.String() != text {
			t.Errorf("%s was settled as %s", text, got)
		}
	}
}
