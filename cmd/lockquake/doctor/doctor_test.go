package doctor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lockquake/lockquake/chaos"
	faults "github.com/lockquake/lockquake/chaos/all"
	"github.com/lockquake/lockquake/chaos/links"
	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/cluster"
)

// TestEveryFaultIsAttempted fails if a fault is in no column of doctor's matrix.
func TestEveryFaultIsAttempted(t *testing.T) {
	list, err := attempts()
	if err != nil {
		t.Fatal(err)
	}
	seen, ids := map[string][]string{}, map[string]bool{}
	for _, a := range list {
		seen[a.kind.Name] = append(seen[a.kind.Name], a.column)
		if ids[a.id()] || a.on == "" {
			t.Errorf("%s: twice, or on nothing", a.id())
		}
		ids[a.id()] = true
	}
	for _, k := range faults.Kinds() {
		if columns := seen[k.Name]; len(columns) == 0 != (k.Name == "noop") {
			t.Errorf("%s is tried on %v", k.Name, columns)
		}
	}
	for fault, want := range map[string]string{"pause": "server client resource", "loss": "link link", "failover": "server"} {
		if got := strings.Join(seen[fault], " "); got != want {
			t.Errorf("%s is tried on %q, want %q", fault, got, want)
		}
	}
}

// TestKillingFaultsAreTriedLast checks the order of the attempts: those that kill a process come last, and no two
// attempts in one column are made at once.
func TestKillingFaultsAreTriedLast(t *testing.T) {
	list, err := attempts()
	if err != nil {
		t.Fatal(err)
	}
	tried := 0
	for stage, rows := range roundsOf(list) {
		taken := map[string]bool{}
		for _, row := range rows {
			for _, i := range row {
				if list[i].kind.Kills != (stage == 1) || list[i].column != list[row[0]].column {
					t.Errorf("%s is in stage %d, beside %s", list[i], stage, list[row[0]])
				}
				tried++
			}
			if taken[list[row[0]].column] {
				t.Errorf("two rows of %s", list[row[0]].column)
			}
			taken[list[row[0]].column] = true
		}
	}
	if tried != len(list) {
		t.Errorf("%d of %d are tried", tried, len(list))
	}
}

func TestTheAnswerIsWhatTheReceiptsSay(t *testing.T) {
	installed := history.Receipt{Status: history.Installed, Evidence: "it bit", By: "netem"}
	bad := history.Receipt{Status: history.NotInstalled, Evidence: "it did\n not"}
	unsure := history.Receipt{Status: history.Indeterminate, Evidence: "who knows"}
	for name, c := range map[string]struct {
		f      history.Fault
		answer string
		reason string
	}{
		"bit and healed":      {history.Fault{Receipt: installed, Healed: &installed}, Yes, ""},
		"cannot tell healed":  {history.Fault{Receipt: installed, Healed: &unsure}, Yes, ""},
		"did not bite":        {history.Fault{Receipt: bad, Healed: &installed}, No, "tried: not-installed: it did not"},
		"cannot tell":         {history.Fault{Receipt: unsure, Healed: &installed}, No, "tried: indeterminate: who knows"},
		"was not healed":      {history.Fault{Receipt: installed, Healed: &bad}, No, "tried: not healed: it did not"},
		"was never healed":    {history.Fault{Receipt: installed}, No, "tried: not healed: "},
		"bit by other means ": {history.Fault{Receipt: history.Receipt{Status: history.Installed}, Healed: &installed}, Yes, ""},
	} {
		w := seenOf(c.f)
		if w.Answer != c.answer || w.Reason != c.reason || w.By != c.f.Receipt.By || w.At.IsZero() {
			t.Errorf("%s: %+v", name, w)
		}
	}
}

// TestTriedHostsAreListed: each host is listed with the number of ways tried on it.
func TestTriedHostsAreListed(t *testing.T) {
	at := time.Unix(1, 0)
	got := matrixText(cellsOf("swarm", "pause", map[string][]way{
		onServer: {{Answer: Yes, At: at, Hosts: []string{"b", "a"}}}, onClient: {{Answer: Yes, At: at, Hosts: []string{"b"}}},
	}))
	if want := "\ntried on host a: 1\ntried on host b: 2\n"; !strings.HasSuffix(got, want) {
		t.Errorf("%q, want %q behind it", got, want)
	}
}

// cellsOf returns the four cells of a fault.
func cellsOf(provider, fault string, ways map[string][]way) []Cell {
	var out []Cell
	for _, column := range columns {
		c := Cell{Provider: provider, Fault: fault, Node: column, Answer: Never}
		for _, w := range ways[column] {
			c.add(w)
		}
		out = append(out, c)
	}
	return out
}

func TestMatrixIsDrawn(t *testing.T) {
	at := time.Unix(1, 0)
	lacks := way{Answer: No, Reason: "this kernel has no sch_netem"}
	var cells []Cell
	for _, provider := range []string{"docker", "local"} {
		cells = append(cells, cellsOf(provider, "pause", map[string][]way{
			onServer: {{Answer: Yes, At: at}}, onClient: {{Answer: Yes, At: at, Cached: true}}, onResource: {{Answer: No, Reason: "tried: not-installed: it runs", At: at}},
		})...)
		cells = append(cells, cellsOf(provider, "clock-jump", map[string][]way{
			onServer: {{Keys: "by: +60s", Answer: Yes, By: "vdso", At: at}, {Keys: "by: +60s, how: faketime", Answer: No, Reason: "no library"}},
			onClient: {{Keys: "by: +60s", Answer: Yes, By: "vdso", At: at}, {Keys: "by: +60s, how: faketime", Answer: Never, Reason: "it is a Go program"}},
		})...)
		cells = append(cells, cellsOf(provider, "duplicate", map[string][]way{onLink: {lacks}})...)
	}
	const want = `
provider docker
  fault       server    client  resource  link
  pause       yes       yes     no [1]    -
  clock-jump  vdso [2]  vdso    -         -
  duplicate   -         -       -         no [3]

provider local
  fault       server    client  resource  link
  pause       yes       yes     no [1]    -
  clock-jump  vdso [2]  vdso    -         -
  duplicate   -         -       -         no [3]

[1] tried: not-installed: it runs
[2] by: +60s, how: faketime: no library
[3] this kernel has no sch_netem

2 of the 10 are cached successes of this program since the last boot; --fresh tries them again
`
	if got := matrixText(cells); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestEveryHostHasARow: a host without any information has a row too, with the reason.
func TestEveryHostHasARow(t *testing.T) {
	const want = `
host  engine   kernel  processors  clock                         agent                          cannot
a     27.0.1   6.1     8           the supervisor's own          in the engine's pid namespace  netem (no module); queue (none)                      
b     20.10.5  5.10    4           ahead by 1m40s, to within 9ms  in the engine's pid namespace  -
c     26.1     6.6     2           -                             not started: no                have nodes (the agent is unavailable: not started: no)
d     -        -       -           -                             -                              have nodes (it does not take part: down, active)

from  to  round trip, median  95 %  arrived    clock error of the pair
a     b   2ms                 3ms   99 of 100  9ms

encryption of the network between the hosts: none: traffic between hosts, including passwords, can be read on the way
`
	got := HostsText([]cluster.HostSeen{
		{
			Name: "a", Engine: "27.0.1", Kernel: "6.1", Processors: 8, Supervisor: true, Agent: "in the engine's pid namespace", Clock: &cluster.ClockSeen{},
			Cannot: map[string]string{"queue": "none", "netem": "netem is unavailable: no\n module"},
			Links:  []cluster.HostLink{{To: "b", RoundTrip: links.Spread{Mid: 2 * time.Millisecond, High: 3 * time.Millisecond}, Sent: 100, Arrived: 99, ClockError: 9 * time.Millisecond}},
		},
		{Name: "b", Engine: "20.10.5", Kernel: "5.10", Processors: 4, Agent: "in the engine's pid namespace", Clock: &cluster.ClockSeen{Offset: -100 * time.Second, Error: 9 * time.Millisecond}},
		{Name: "c", Engine: "26.1", Kernel: "6.6", Processors: 2, Agent: "not started: no", Lacks: "the agent is unavailable: not started: no"},
		{Name: "d", Lacks: "it does not take part: down, active"},
	})
	if strings.Join(strings.Fields(got), " ") != strings.Join(strings.Fields(want), " ") || strings.Count(got, "\n") != strings.Count(want, "\n")+1 {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got := HostsText(nil); got != "" {
		t.Errorf("of no swarm: %q", got)
	}
}

func TestATrialCacheHoldsForItsKeyAlone(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("LOCKQUAKE_BIN", self)
	p := cluster.NewInproc(nil)
	first, err := openTrialCache(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	a := attempt{kind: chaos.Kind{Name: "loss"}, keys: "share: 30%, engine: queue", column: onLink}
	first.note(a, way{Keys: a.keys, Answer: Yes, Evidence: "30 of 100 were lost"})
	failed := attempt{kind: chaos.Kind{Name: "delay"}, column: onLink}
	first.note(failed, way{Answer: No, Reason: "tried, and nothing was late"})
	if err := first.save(); err != nil {
		t.Fatal(err)
	}
	again, err := openTrialCache(t.Context(), p)
	if err != nil || len(again.Ways) != 1 || again.Ways[a.id()].Evidence != "30 of 100 were lost" {
		t.Fatalf("read back: %+v, %v", again, err)
	}
	for name, change := range map[string]func(*trialKey){
		"boot": func(k *trialKey) { k.Boot += "x" }, "program": func(k *trialKey) { k.Program += "x" },
		"user": func(k *trialKey) { k.User++ }, "engine": func(k *trialKey) { k.Engine += "x" },
	} {
		other := readTrialCache(trialCachePath(p))
		change(&other.Key)
		if err := other.save(); err != nil {
			t.Fatal(err)
		}
		if b, err := openTrialCache(t.Context(), p); err != nil || len(b.Ways) > 0 || b.Key != first.Key {
			t.Errorf("another %s: %+v, %v", name, b, err)
		}
	}
	if b := readTrialCache(filepath.Join(t.TempDir(), "none")); len(b.Ways) > 0 {
		t.Errorf("a cache that is not there: %+v", b)
	}
}
