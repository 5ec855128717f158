package hunt

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockquake/lockquake/internal/campaign"
	"github.com/lockquake/lockquake/internal/engine"
	"github.com/lockquake/lockquake/internal/hunt/behaviour"
	"github.com/lockquake/lockquake/internal/hunt/script"
	"github.com/lockquake/lockquake/scenarios"
)

// numbers are scripts that are sets of faults by number: a subset of them breaks the lock.
type numbers struct{ refuse int }

// keys are hard to write as the text of a claim.
const keys = `by: "-2s", how: it's # so`

func numbered(list ...int) (x script.Script) {
	x.For = 2 * time.Second
	for _, n := range list {
		x.Faults = append(x.Faults, script.Injection{Use: fmt.Sprint(n), On: "clients", Keys: keys})
	}
	return x
}

func numbersOf(x script.Script) (out []int) {
	for _, f := range x.Faults {
		var n int
		_, _ = fmt.Sscan(f.Use, &n)
		out = append(out, n)
	}
	return out
}

func (numbers) Draw(r *rand.Rand) script.Script { return numbered(r.IntN(20)) }

func (numbers) Mutate(r *rand.Rand, of script.Script, _ []script.Script) script.Script {
	return numbered(append(numbersOf(of), r.IntN(20))...)
}

func (n numbers) Scenario(x script.Script, _ bool) (scenarios.Scenario, error) {
	if slices.Contains(numbersOf(x), n.refuse) {
		return scenarios.Scenario{}, errors.New("refused")
	}
	text := fmt.Sprintf("name: try\nclaim: Numbers %v.\nbackend: {use: memory, ttl: 1s}\nworkload: {use: counter, clients: 1}\nrun: {for: 2s}\n", numbersOf(x))
	return scenarios.Parse([]byte(text), "try.yaml")
}

func (numbers) Reductions(x script.Script) (out []script.Script) {
	list := numbersOf(x)
	if len(list) > 3 {
		out = append(out, numbered(list[:len(list)/2]...), numbered(list[len(list)/2:]...))
	}
	for i := range list {
		if len(list) > 1 {
			out = append(out, numbered(slices.Delete(slices.Clone(list), i, i+1)...))
		}
	}
	return out
}

func (numbers) Size(x script.Script) script.Size {
	return script.Size{Faults: len(x.Faults), Steps: len(x.Faults)}
}

// world answers jobs without a run: a script that has 3 and 7 breaks the lock in a share of its runs.
type world struct {
	t     *testing.T
	hunt  *Hunt
	done  []campaign.Result
	share float64
	crowd float64 // the share for scripts with more than two faults, if not 0
	doubt float64 // the share of runs that do not show it, before the last ones
	r     *rand.Rand
}

func newWorld(t *testing.T, seed uint64) *world {
	h := &Hunt{
		Scripts: numbers{refuse: -1}, Goals: goals[:2], Seed: seed, Budget: 10 * time.Minute,
		ShrinkBudget: 10 * time.Minute, Takes: func(d time.Duration) time.Duration { return d },
		Options: func(s scenarios.Scenario) engine.Options {
			return engine.Options{Request: engine.Request{Scenario: s}}
		},
		Keep: Keep{Dir: t.TempDir()},
	}
	return &world{t: t, hunt: h, share: 1, r: rand.New(rand.NewPCG(seed, 1))}
}

// answer returns a result for a job.
func (w *world) answer(j campaign.Job) campaign.Result {
	n := w.hunt.under
	list := numbersOf(n.Script)
	share := w.share
	if w.crowd > 0 && len(list) > 2 {
		share = w.crowd
	}
	breaks := slices.Contains(list, 3) && slices.Contains(list, 7) && w.r.Float64() < share
	switch j.Name {
	case jobSearch:
		var seen behaviour.Seen
		for _, one := range list {
			if one == 3 || one == 7 {
				seen.Behaviours = append(seen.Behaviours, fmt.Sprint(one))
			}
		}
		n.Near = map[string]float64{"double_grants": float64(len(seen.Behaviours)) / 2}
		slices.Sort(seen.Behaviours)
		seen.Behaviours = slices.Compact(seen.Behaviours)
		n.New, n.Had = w.hunt.search.corpus.known(seen)
		if breaks {
			n.Found = []Violation{{Goal: "double_grants", Count: 1, Claim: "Double grant: two clients hold lock-0"}}
		}
	case jobShrink:
		n.Unsure = !w.hunt.shrink.proving && w.r.Float64() < w.doubt
		n.Reached = breaks && !n.Unsure
	}
	note, err := json.Marshal(n)
	if err != nil {
		w.t.Fatal(err)
	}
	return campaign.Result{Job: j.Name, Took: 3000, Note: note, Verdict: "pass"}
}

// run makes up to n more runs; ok is false when the hunt is over.
func (w *world) run(n int) (ok bool) {
	for range n {
		j, ok := w.hunt.Next(w.done)
		if !ok {
			return false
		}
		w.done = append(w.done, w.answer(j))
	}
	return true
}

func TestAHuntFindsAndShrinks(t *testing.T) {
	w := newWorld(t, 1)
	w.hunt.Budget = time.Hour
	if w.run(5000) {
		t.Fatal("it goes on for ever")
	}
	x := w.hunt.shrink.result()
	if x == nil || !x.HandedOut() {
		t.Fatalf("nothing is handed out: %+v, %v", x, w.hunt.Err)
	}
	if got := numbersOf(x.Script); len(got) != 2 || !slices.Contains(got, 3) || !slices.Contains(got, 7) {
		t.Errorf("it was made as small as %v", got)
	}
	if err := w.hunt.HandOut(); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(w.hunt.Keep.Dir, x.File)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`double_grants: ">0"`, "- double_grants", "Double grant: two clients hold lock-0. It takes"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%s lacks %q:\n%s", file, want, text)
		}
	}
}

func TestGuidedSearchNeedsFewerRunsThanDrawing(t *testing.T) {
	runs := func(random bool) (sum int) {
		for seed := range uint64(5) {
			w := newWorld(t, seed)
			w.hunt.Random = random
			w.hunt.Budget = time.Hour
			w.run(400)
			sum += w.hunt.search.runs
		}
		return sum
	}
	// A drawn script has one number, so the baseline finds nothing at all.
	if guided, random := runs(false), runs(true); 3*guided > random {
		t.Errorf("guided %d runs, drawn %d", guided, random)
	}
}

// A resumed hunt has the state that it left, and proposes the same next run.
// A script that shows one family of behaviours with many faults is no more promising than one that shows it with one.
func TestEnergyCountsFamilies(t *testing.T) {
	var c corpus
	many, two := Note{}, Note{New: []string{"order a granted, b granted", "during pause@holder: lost"}}
	for _, fault := range []string{"delay", "loss", "kill", "stop"} {
		many.New = append(many.New, "during "+fault+"@server: acquire ok, free", "after "+fault+"@server: acquire ok, free")
	}
	c.learn(many, 1, 1)
	c.learn(two, 2, 2)
	if a, b := c.energy(c.entries[0], goals), c.energy(c.entries[1], goals); a >= b {
		t.Errorf("one family with four faults: %.2f, two families: %.2f", a, b)
	}
}

func TestAHuntGoesOnWithTheSameRun(t *testing.T) {
	for _, share := range []float64{1, 0.6} {
		w := newWorld(t, 7)
		w.hunt.Budget, w.share = time.Hour, share
		for !t.Failed() && w.run(1) {
			again := newWorld(t, 7)
			again.hunt.Budget = time.Hour
			a, okA := w.hunt.Next(w.done)
			b, okB := again.hunt.Next(w.done)
			if okA != okB || a.Name != b.Name || a.Seed != b.Seed || string(a.Options.Scenario.Text) != string(b.Options.Scenario.Text) {
				t.Errorf("after %d runs: %v %s, gone on with: %v %s", len(w.done), okA, a.Options.Scenario.Text, okB,
					b.Options.Scenario.Text)
			}
			if !reflect.DeepEqual(w.hunt.search.corpus.curve, again.hunt.search.corpus.curve) {
				t.Errorf("after %d runs another curve", len(w.done))
			}
			if len(w.done) > 120 {
				break
			}
		}
	}
}

func TestTheBudgetEndsASearchThatFindsNothing(t *testing.T) {
	w := newWorld(t, 3)
	w.hunt.Budget, w.share = time.Minute, 0
	if w.run(1000) {
		t.Fatal("it goes on for ever")
	}
	if w.hunt.search.runs != 20 || w.hunt.shrink.phase.runs != 0 {
		t.Errorf("%d runs and %d to make it smaller, want 20 of 3 s and none", w.hunt.search.runs, w.hunt.shrink.phase.runs)
	}
	var r Result
	w.hunt.Fill(&r)
	if len(r.Findings) != 0 || r.Shrunk != nil || r.Answer() != "nothing found (double grants and stale writes)" {
		t.Errorf("%s: %+v", r.Answer(), r)
	}
	if err := w.hunt.HandOut(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(w.hunt.Keep.Dir, DirFound)); err == nil {
		t.Error("something is handed out")
	}
}

// A script that breaks the lock only now and then is reported, and not handed out.
func TestWhatDoesNotReproduceIsNotHandedOut(t *testing.T) {
	w := newWorld(t, 1)
	w.hunt.Budget, w.share = time.Hour, 0.4
	w.run(5000)
	x := w.hunt.shrink.result()
	if x == nil || x.HandedOut() {
		t.Fatalf("handed out: %+v", x)
	}
	if x.Runs == 0 {
		t.Error("it does not say in how many runs")
	}
	var r Result
	w.hunt.Fill(&r)
	var b strings.Builder
	if err := r.Text(&b, "DIR"); err != nil || !strings.Contains(b.String(), "does not reproduce: ") {
		t.Errorf("%v:\n%s", err, b.String())
	}
}

// A run that does not show whether the goal was reached is repeated, but not forever.
func TestARunThatShowsNothingIsRepeated(t *testing.T) {
	for seed := range uint64(3) {
		w := newWorld(t, seed)
		w.hunt.Budget, w.hunt.ShrinkBudget, w.doubt = time.Hour, time.Hour, 0.25
		w.run(5000)
		if x := w.hunt.shrink.result(); !x.HandedOut() || len(x.Script.Faults) != 2 {
			t.Errorf("a quarter of the runs shows nothing: %+v", x)
		}
	}
	w := newWorld(t, 1)
	w.hunt.Budget, w.doubt = time.Hour, 1
	w.run(5000)
	if x := w.hunt.shrink.result(); x.HandedOut() {
		t.Errorf("no run shows anything: %+v", x)
	}
}

// A budget for a few candidates leaves time to accept the current script.
func TestAShortShrinkBudgetHandsOutWhatThereIs(t *testing.T) {
	w := newWorld(t, 1)
	w.hunt.Budget, w.hunt.ShrinkBudget = time.Hour, time.Minute
	w.hunt.Seeds = []script.Script{numbered(1, 2, 3, 4, 5, 6, 7, 8)}
	w.run(5000)
	x := w.hunt.shrink.result()
	if !x.HandedOut() || x.Stopped == "" || x.Took > time.Minute.Milliseconds() {
		t.Errorf("%+v", x)
	}
}

// A script too long for the rest of the budget is skipped in favour of a shorter one.
func TestAShortBudgetIsForShortScripts(t *testing.T) {
	w := newWorld(t, 3)
	w.hunt.Scripts, w.hunt.Budget = lengths{}, 4*time.Second
	if !w.run(1) || numbersOf(w.hunt.under.Script)[0] > 4 {
		t.Errorf("the first script of a budget of 4 s: %v", w.hunt.under.Script)
	}
}

// lengths are scripts whose number is their length in seconds.
type lengths struct{ numbers }

func (lengths) Draw(r *rand.Rand) script.Script {
	x := numbered(r.IntN(20))
	x.For = time.Duration(numbersOf(x)[0]) * time.Second
	return x
}

// A script that does not reproduce as it was found is made smaller all the same: a smaller one may reproduce.
func TestWhatReproducesOnlyWhenItIsSmaller(t *testing.T) {
	w := newWorld(t, 1)
	w.hunt.Budget, w.hunt.ShrinkBudget, w.crowd = time.Hour, 3*time.Minute, 0.5
	w.hunt.Seeds = []script.Script{numbered(3, 7, 11)}
	for w.run(1) && w.hunt.search.worst(w.hunt.Goals) == nil {
		w.hunt.Seeds = append(w.hunt.Seeds, numbered(3, 7, 11))
	}
	w.run(5000)
	if x := w.hunt.shrink.result(); !x.HandedOut() || len(x.Script.Faults) != 2 {
		t.Errorf("%+v", x)
	}
}

func TestScriptsThatAreRefusedCostNoRun(t *testing.T) {
	w := newWorld(t, 5)
	w.hunt.Scripts = numbers{refuse: 4}
	w.hunt.Budget, w.share = 5*time.Minute, 0
	w.run(1000)
	if w.hunt.Err != nil || w.hunt.search.runs != 100 {
		t.Errorf("%d runs, %v", w.hunt.search.runs, w.hunt.Err)
	}
	all := newWorld(t, 5)
	all.hunt.Scripts = refusing{}
	if all.run(1) || all.hunt.Err == nil {
		t.Error("a hunt whose scripts are all refused does not say so")
	}
}

type refusing struct{ numbers }

func (refusing) Scenario(script.Script, bool) (scenarios.Scenario, error) {
	return scenarios.Scenario{}, errors.New("refused")
}

func TestJobsThatCannotBeMadeEndTheHunt(t *testing.T) {
	w := newWorld(t, 5)
	lacking := errors.New("no such program")
	for range 100 {
		j, ok := w.hunt.Next(w.done)
		if !ok {
			break
		}
		w.done = append(w.done, campaign.Result{Job: j.Name, NotMade: lacking.Error(), Err: lacking})
	}
	if len(w.done) != patience || !errors.Is(w.hunt.Err, lacking) {
		t.Errorf("%d jobs, %v", len(w.done), w.hunt.Err)
	}
}

func TestOwnScriptsAreTriedFirst(t *testing.T) {
	w := newWorld(t, 5)
	w.hunt.Seeds = []script.Script{numbered(1, 2), numbered(3, 7)}
	w.run(2)
	_, _ = w.hunt.Next(w.done)
	if f := w.hunt.search.worst(w.hunt.Goals); f == nil || f.Run != 2 {
		t.Errorf("found %+v", f)
	}
}

func TestOnlySoMuchIsKept(t *testing.T) {
	k := Keep{Dir: t.TempDir(), Most: 2500}
	for i := range 5 {
		dir := filepath.Join(k.Dir, fmt.Sprint(i))
		if err := writeFile(filepath.Join(dir, "file"), make([]byte, 1000)); err != nil {
			t.Fatal(err)
		}
		if err := k.add(dir); err != nil {
			t.Fatal(err)
		}
	}
	left, err := os.ReadDir(k.Dir)
	if err != nil || len(left) != 2 || left[0].Name() != "3" {
		t.Errorf("left: %v, %v", left, err)
	}
}

// The run that started the servers keeps its directory as long as they are up.
func TestTheHomeOfTheServersGoesLast(t *testing.T) {
	k := Keep{Dir: t.TempDir()}
	first, second := filepath.Join(k.Dir, "1"), filepath.Join(k.Dir, "2")
	for _, dir := range []string{first, second} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	k.lives(&campaign.Result{At: first})
	if err := k.remove(first); err != nil {
		t.Fatal(err)
	}
	k.lives(&campaign.Result{At: second, Kept: true})
	if _, err := os.Stat(first); err != nil {
		t.Error(err)
	}
	k.lives(&campaign.Result{At: second})
	if _, err := os.Stat(first); err == nil {
		t.Error("it is there when the servers are gone")
	}
}
