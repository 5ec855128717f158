package links

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/chaos/faulttest"
	"github.com/lockquake/lockquake/history"
)

// overlapped returns all link faults, each with keys that make it visible.
func overlapped() []string {
	return append(slices.Sorted(maps.Keys(shapeFaults)), "partition", "hold-back")
}

func paramsOf(fault string) string {
	switch fault {
	case "partition":
		return "{}"
	case "hold-back":
		return "{to: x}"
	}
	return shapeFaults[fault]
}

// anyCable is two nodes whose kernels have all engines.
func anyCable() (*cable, *chaos.LinkFaults, func(on, peer int) chaos.Scope) {
	c, lanes := wire("a", "b"), &chaos.LinkFaults{}
	for _, n := range c.nodes {
		n.engines = map[Engine]string{Netem: "", Queue: "", TBF: ""}
	}
	return c, lanes, func(on, peer int) chaos.Scope {
		return chaos.Scope{On: c.list()[on : on+1], Peers: c.list()[peer : peer+1], LinkFaults: lanes}
	}
}

// put injects a fault that another one may hide.
func put(t *testing.T, fault string, s chaos.Scope) chaos.Heal {
	t.Helper()
	heal, _, err := newFault(t, fault, paramsOf(fault)).Inject(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	return heal
}

func wellHealed(t *testing.T, what string, heal chaos.Heal) {
	t.Helper()
	r, err := heal(t.Context())
	if err != nil || r.Status != history.Installed || !strings.Contains(r.Evidence, "gone, according to the kernel's lists") {
		t.Errorf("%s: the heal is %s, %v: %s", what, r.Status, err, r.Evidence)
	}
}

// TestHealsJudgeOnlyTheirOwn heals each of two faults on one link, from the same end and from both, in both orders.
func TestHealsJudgeOnlyTheirOwn(t *testing.T) {
	for _, one := range overlapped() {
		t.Run(one, func(t *testing.T) {
			t.Parallel()
			for _, other := range overlapped() {
				for _, from := range []int{0, 1} {
					for _, order := range [][]int{{0, 1}, {1, 0}} {
						_, _, scope := anyCable()
						heals := []chaos.Heal{put(t, one, scope(0, 1)), put(t, other, scope(from, 1-from))}
						for _, i := range order {
							wellHealed(t, one+" with "+other, heals[i])
						}
					}
				}
			}
		})
	}
}

// TestHealsJudgeOnlyTheirOwnWhateverComes injects the other fault between the end of the first and the look at the
// link, or heals one at that moment.
func TestHealsJudgeOnlyTheirOwnWhateverComes(t *testing.T) {
	t.Parallel()
	for _, one := range overlapped() {
		for _, other := range overlapped() {
			c, _, scope := anyCable()
			heal := put(t, one, scope(0, 1))
			var later chaos.Heal
			c.nodes[0].looked = func() { later = put(t, other, scope(1, 0)) }
			wellHealed(t, one+" while "+other+" comes", heal)
			wellHealed(t, other, later)

			earlier, heal := put(t, other, scope(1, 0)), put(t, one, scope(0, 1))
			c.nodes[0].looked = func() { wellHealed(t, other, earlier) }
			wellHealed(t, one+" while "+other+" goes", heal)
		}
	}
}

// TestAnotherLinkExcusesNothing keeps a fault active while others are active that do not concern its packets.
func TestAnotherLinkExcusesNothing(t *testing.T) {
	for _, fault := range []string{"loss", "delay", "partition"} {
		for what, beside := range map[string]func(c *cable, s chaos.Scope) chaos.Scope{
			"to another node": func(c *cable, s chaos.Scope) chaos.Scope { s.Peers = c.list()[2:]; return s },
			"of another port": func(_ *cable, s chaos.Scope) chaos.Scope { return s },
		} {
			c, lanes := wire("a", "b", "c"), &chaos.LinkFaults{}
			s := chaos.Scope{On: c.list()[:1], Peers: c.list()[1:2], LinkFaults: lanes}
			heal := put(t, fault, s)
			params := "{}"
			if strings.Contains(what, "port") {
				params = "{port: 6379}"
			}
			if _, _, err := newFault(t, "partition", params).Inject(t.Context(), beside(c, s)); err != nil {
				t.Fatal(err)
			}
			for _, n := range c.nodes {
				n.keeps = true
			}
			if r, err := heal(t.Context()); err == nil || r.Status != history.NotInstalled {
				t.Errorf("%s was not healed, beside a partition %s: %s, %v", fault, what, r.Status, err)
			}
		}
	}
}

func TestConcurrentChangeIsNotOwn(t *testing.T) {
	c, _, scope := anyCable()
	slow := faulttest.Injected(t, "the first delay", newFault(t, "delay", "{by: 200ms}"), scope(0, 1))
	looks := 0
	var look func()
	look = func() { // the second look is the one at what the fault does
		if looks++; looks == 2 {
			wellHealed(t, "the first delay", slow)
			return
		}
		c.nodes[0].looked = look
	}
	c.nodes[0].looked = look
	_, r, err := newFault(t, "delay", "{by: 50ms}").Inject(t.Context(), scope(0, 1))
	if err != nil {
		t.Fatal(err)
	}
	faulttest.WantStatus(t, "a delay beside which a longer one was healed", r, history.Indeterminate)
}
