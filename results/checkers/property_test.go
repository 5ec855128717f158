package checkers

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/anishathalye/porcupine"
	"pgregory.net/rapid"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
)

// cycle is one hold with its requests, before it becomes events.
type cycle struct {
	user                                 history.User
	mode                                 uint8
	invoke, ok, valid, release, released int64
}

// events turns cycles into a history in the order of time. The cycles of one user must not overlap.
func cycleEvents(cs []cycle) []history.Event {
	var es []history.Event
	for _, c := range cs {
		for _, e := range []history.Event{
			{Time: c.invoke, Kind: history.Acquire, Phase: history.Invoke},
			{Time: c.ok, Kind: history.Acquire, Phase: history.Ok, Valid: c.valid, Value: c.invoke},
			{Time: c.release, Kind: history.Release, Phase: history.Invoke},
			{Time: c.released, Kind: history.Release, Phase: history.Ok},
		} {
			e.User, e.Mode = c.user, c.mode
			es = append(es, e)
		}
	}
	slices.SortStableFunc(es, func(a, b history.Event) int { return cmp.Compare(a.Time, b.Time) })
	seq := map[int]uint32{}
	acquire, release := map[history.User]uint32{}, map[history.User]uint32{}
	for i := range es {
		e := &es[i]
		seq[e.User.Client()]++
		e.Seq = seq[e.User.Client()]
		if e.Phase == history.Invoke {
			if e.Kind == history.Acquire {
				acquire[e.User] = e.Seq
			} else {
				release[e.User] = e.Seq
			}
		}
		e.Op, e.Grant = acquire[e.User], acquire[e.User]
		if e.Kind == history.Release {
			e.Op = release[e.User]
		}
	}
	return es
}

func sweep(es []history.Event) results.Finding {
	run := results.Run{Locks: []string{"lock-0"}, TTL: 1000}
	x := followed(run, newExclusion(run))
	for i := range es {
		x.Observe(&es[i])
	}
	return x.Finish()
}

// serial draws holds that follow one another; requests and releases may overlap as in a queue.
func serial(t *rapid.T, n int) []cycle {
	var cs []cycle
	free := map[history.User]int64{} // when the user may ask again
	now := int64(100)
	for range n {
		u := history.MakeUser(rapid.IntRange(0, 3).Draw(t, "client"), rapid.IntRange(0, 1).Draw(t, "user"))
		ok := max(now, free[u]+1) + rapid.Int64Range(0, 5).Draw(t, "idle")
		c := cycle{user: u, ok: ok, invoke: max(free[u], ok-rapid.Int64Range(0, 50).Draw(t, "asked"))}
		c.release = ok + rapid.Int64Range(0, 20).Draw(t, "held")
		c.released = c.release + rapid.Int64Range(0, 20).Draw(t, "releasing")
		c.valid = ok + rapid.Int64Range(-5, 100).Draw(t, "validity")
		if rapid.IntRange(0, 9).Draw(t, "kind of validity") == 0 {
			c.valid = history.ValidEndless
		}
		free[u] = c.released
		now = c.release // the next one may begin at the very moment at which this one starts to release
		cs = append(cs, c)
	}
	return cs
}

func TestSerialIsNeverAccused(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		es := cycleEvents(serial(t, rapid.IntRange(1, 40).Draw(t, "n")))
		f := sweep(es)
		if *f.Counts["double_grants"] != 0 || *f.Counts["overlapping_holds"] != 0 {
			t.Fatalf("a serial history is accused of %s", f.Witnesses[0].Text)
		}
		for _, k := range All() {
			trial := results.NewCheckerRunner(results.Checkers{k}, results.Run{Locks: []string{"lock-0"}, TTL: 1000, Expires: true, Recovery: 1000, Token: TokenNone, Resource: "register"})
			trial.Observe(es, slices.Repeat([]*history.Header{{Process: "client-1"}}, len(es)))
			fs, _ := trial.Finish()
			if f := fs[0]; f.Verdict == results.Violated || strings.Contains(strings.Join(f.Warnings, " "), "crashed") {
				t.Fatalf("%s: %+v", k.Name, f)
			}
		}
	})
}

func TestPlantedOverlapIsFound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cs := serial(t, rapid.IntRange(1, 40).Draw(t, "n"))
		i := rapid.IntRange(0, len(cs)-1).Draw(t, "victim")
		v := cs[i]
		if v.release-v.ok < 2 {
			t.Skip("too short to be overlapped")
		}
		in := rapid.Int64Range(v.ok, v.release-1).Draw(t, "from")
		p := cycle{user: history.MakeUser(9, 0), invoke: v.invoke, ok: in, valid: history.ValidEndless, release: v.release + 1, released: v.release + 1}
		p.release = rapid.Int64Range(in+1, v.release).Draw(t, "to")
		p.released = p.release
		f := sweep(cycleEvents(append(cs, p)))
		double, overlapping := *f.Counts["double_grants"], *f.Counts["overlapping_holds"]
		if double+overlapping != 1 {
			t.Fatalf("planted 1 overlap, found %d double grants and %d overlapping holds", double, overlapping)
		}
		if entitled := in < v.valid; entitled != (double == 1) {
			t.Fatalf("inside from %d, the other valid until %d: found %d double grants", in, v.valid, double)
		}
		if len(f.Witnesses) != 1 || len(f.Witnesses[0].Holds) != 2 {
			t.Fatalf("witnesses: %+v", f.Witnesses)
		}
	})
}

// TestSweepAgreesWithPairs compares the sweep with a check of every pair, on histories with many overlaps of both
// modes.
func TestSweepAgreesWithPairs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cs := tangled(t, true)
		var double, overlapping, possible int64
		for i, a := range cs {
			for _, b := range cs[:i] {
				if a.user == b.user || !conflict(a.mode, b.mode) {
					continue
				}
				from, to := max(a.ok, b.ok), min(a.release, b.release)
				switch {
				case from < min(to, a.valid, b.valid):
					double++
				case from < to:
					overlapping++
				case max(a.invoke, b.invoke) < min(a.released, b.released):
					possible++
				}
			}
		}
		f := sweep(cycleEvents(cs))
		got := fmt.Sprint(*f.Counts["double_grants"], *f.Counts["overlapping_holds"], *f.Counts["possible_overlaps"])
		if want := fmt.Sprint(double, overlapping, possible); got != want {
			t.Fatalf("the sweep finds %s, the pairs are %s: %+v", got, want, cs)
		}
	})
}

// TestTooManyLooksAreALowerBound stops the sweep half-way: its findings stand, and a zero is not clean.
func TestTooManyLooksAreALowerBound(t *testing.T) {
	var cs []cycle
	for i := range 40 {
		at := int64(100 + i)
		cs = append(cs, cycle{user: history.MakeUser(i, 0), invoke: at - 50, ok: at, valid: history.ValidEndless, release: at + 100, released: at + 101})
	}
	for bound, want := range map[int]results.Verdict{maxLooks: results.Violated, 100: results.Violated, 0: results.Unknown} {
		run := results.Run{Locks: []string{"lock-0"}, TTL: 1000}
		c := newExclusion(run).(*exclusion)
		c.looks.Most = bound
		x := followed(run, c)
		for _, e := range cycleEvents(cs) {
			x.Observe(&e)
		}
		f := x.Finish()
		if n := *f.Counts["double_grants"]; f.Verdict != want || (n == 40*39/2) != (bound == maxLooks) || (len(f.Warnings) == 0) != (bound == maxLooks) {
			t.Errorf("with %d looks: %s, %d double grants, %q", bound, f.Verdict, n, f.Warnings)
		}
	}
}

// tangled draws holds at random; all times of different users differ.
func tangled(t *rapid.T, modes bool) []cycle {
	n := rapid.IntRange(1, 10).Draw(t, "n")
	times := rapid.Permutation(series(4*n)).Draw(t, "times")
	var cs []cycle
	for i := range n {
		four := slices.Clone(times[4*i : 4*i+4])
		slices.Sort(four)
		u := history.MakeUser(i, 0)
		c := cycle{user: u, invoke: four[0], ok: four[1], release: four[2], released: four[3], valid: rapid.Int64Range(four[1], int64(8*n)).Draw(t, "valid")}
		if modes {
			c.mode = uint8(rapid.IntRange(0, 1).Draw(t, "mode"))
		}
		cs = append(cs, c)
	}
	return cs
}

func series(n int) []int64 {
	s := make([]int64, n)
	for i := range s {
		s[i] = int64(2 * (i + 1))
	}
	return s
}

// spread makes all times differ and keeps their order: porcupine takes equal times for concurrent.
func spread(cs []cycle) {
	var ts []*int64
	for i := range cs {
		c := &cs[i]
		c.valid = history.ValidEndless
		ts = append(ts, &c.invoke, &c.ok, &c.release, &c.released)
	}
	slices.SortStableFunc(ts, func(a, b *int64) int { return cmp.Compare(*a, *b) })
	for i, t := range ts {
		*t = int64(i)
	}
}

// lockModel is a lock for porcupine: it is acquired when it is free, and released by its holder.
var lockModel = porcupine.Model{
	Init: func() any { return -1 },
	Step: func(state, input, _ any) (bool, any) {
		holder, op := state.(int), input.(int) // op: the user, or -2-user for its release
		if op >= 0 {
			return holder == -1, op
		}
		return holder == -2-op, -1
	},
	Equal: func(a, b any) bool { return a == b },
}

// TestPorcupineAgrees checks the sweep against a linearizability search. A lock is linearizable exactly if no two
// certain holds overlap, when an acquire may take effect up to its ok and a release from its invoke on.
func TestPorcupineAgrees(t *testing.T) {
	seen := map[bool]int{}
	rapid.Check(t, func(t *rapid.T) {
		var cs []cycle
		if rapid.Bool().Draw(t, "serial") {
			cs = serial(t, rapid.IntRange(1, 8).Draw(t, "n"))
			spread(cs)
		} else {
			cs = tangled(t, false)
		}
		var ops []porcupine.Operation
		for _, c := range cs {
			id := int(c.user)
			ops = append(ops,
				porcupine.Operation{ClientId: id, Input: id, Call: c.invoke, Output: 0, Return: c.ok},
				porcupine.Operation{ClientId: id, Input: -2 - id, Call: c.release, Output: 0, Return: c.released})
		}
		legal := porcupine.CheckOperations(lockModel, ops)
		seen[legal]++
		f := sweep(cycleEvents(cs))
		found := *f.Counts["double_grants"] + *f.Counts["overlapping_holds"]
		if found > 0 && legal {
			t.Fatalf("the sweep finds %d overlaps in a history that a lock allows: %+v", found, cs)
		}
		if found == 0 && !legal {
			t.Fatalf("the sweep finds nothing in a history that no lock allows: %+v", cs)
		}
	})
	if seen[true] == 0 || seen[false] == 0 { // each is in a fifth of the histories at least: 100 without one come once in 10^9 runs
		t.Fatalf("only one kind of history was drawn: %v", seen)
	}
}
