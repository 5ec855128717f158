package hunt

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/results/figure"
	"github.com/lockquake/lockquake/results/report/scene"
	"github.com/lockquake/lockquake/scenarios"
)

// Goal is a count that a hunt tries to raise above zero.
type Goal struct {
	Name string // of the count
	// Needs returns what a lock lacks without which the count is always zero; "" if it lacks nothing.
	Needs func(Target) string
	// Asks says that the count is judged by what the service has of the locks: it is asked all the time then.
	Asks bool
	// Waits says that the count rises only when something has lasted for as long as the lock may take to recover.
	Waits bool
}

// Target describes the lock to goals.
type Target struct {
	Lock    backends.Lock
	Servers backends.Servers
}

// goals lists all of them, the worst first.
var goals = []Goal{
	{Name: "double_grants", Needs: nothing},
	{Name: "stale_writes", Needs: nothing},
	{Name: "stuck_locks", Needs: nothing, Waits: true},
	{Name: "foreign_releases", Needs: nothing},
	{Name: "token_regressions", Needs: tokens},
	{Name: "false_results", Needs: asked, Asks: true},
	{Name: "orphans", Needs: asked, Asks: true, Waits: true},
	{Name: "deaf_waits", Needs: nothing, Waits: true},
	{Name: "overlapping_holds", Needs: nothing},
	{Name: "starved_users", Needs: nothing, Waits: true},
}

func nothing(Target) string { return "" }

func tokens(t Target) string {
	if t.Lock.Offers.Token == backends.TokenNone {
		return "the lock has no fencing tokens"
	}
	return ""
}

func asked(t Target) string {
	if t.Servers.Unasked {
		return "the service cannot be asked what it has of the lock"
	}
	return ""
}

// asks reports whether the goal of that name has Asks.
func asks(name string) bool {
	return slices.ContainsFunc(goals, func(g Goal) bool { return g.Name == name && g.Asks })
}

// GoalNames lists the goals in their order.
func GoalNames() (names []string) {
	for _, g := range goals {
		names = append(names, g.Name)
	}
	return names
}

// Goals returns the goals of a hunt in their order: the named ones, or all that the lock can violate. An unknown
// name, or a goal that the lock cannot violate, is an error.
func Goals(named []string, t Target) (out []Goal, err error) {
	if t.Lock.Absent {
		return nil, fmt.Errorf("%s is no lock: it grants nothing that could be violated", t.Lock.Name)
	}
	for _, name := range named {
		i := slices.IndexFunc(goals, func(g Goal) bool { return g.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("there is no goal %q; the goals are %s", name, strings.Join(GoalNames(), ", "))
		}
		if why := goals[i].Needs(t); why != "" {
			return nil, fmt.Errorf("%s cannot violate %s: %s", t.Lock.Name, name, why)
		}
	}
	for _, g := range goals {
		if len(named) == 0 && g.Needs(t) == "" || slices.Contains(named, g.Name) {
			out = append(out, g)
		}
	}
	return out, nil
}

// atLeastOne is the fewest grants that a run must judge: a violation can be found in a handful of grants.
const atLeastOne = `judged: ">=1"`

// forbid returns the expectations of the tries of a search: every goal is forbidden. So the judge weighs each count
// as in any run: violations explained by a stall of the machine, or by a late fault, are not failures.
func forbid(list []Goal) string {
	pairs := []string{atLeastOne}
	for _, g := range list {
		pairs = append(pairs, g.Name+`: "0"`)
	}
	return "expect={" + strings.Join(pairs, ", ") + "}"
}

// demand returns the expectation of a script that is handed out: the goal is reached, whatever else is violated.
func demand(goal string, others []string) string {
	pairs := []string{goal + `: ">0"`}
	for _, name := range others {
		pairs = append(pairs, name+`: ">=0"`)
	}
	return "expect={" + strings.Join(append(pairs, atLeastOne), ", ") + "}"
}

// Violation is a violation found by the judge in a run.
type Violation struct {
	Goal    string `json:"goal"`
	Count   int64  `json:"count"`
	Claim   string `json:"claim"`             // the headline of its first witness
	Witness string `json:"witness,omitempty"` // the text of that witness
}

// violations returns the goals that a run reached according to its verdict, in their order, and the other counts that
// had to be zero and were not. A forbidden goal is reached if that expectation failed, a demanded one if it was met.
func violations(r results.Report, wanted []Goal) (found []Violation, others []string) {
	for _, x := range r.Expectations {
		if x.Got == nil || *x.Got <= 0 || x.Name == scenarios.Judged {
			continue
		}
		demanded := strings.HasPrefix(x.Want, ">") && !strings.HasPrefix(x.Want, ">=")
		reached := x.Verdict == results.Fail && !demanded || x.Verdict == results.Pass && demanded
		isGoal := slices.ContainsFunc(wanted, func(g Goal) bool { return g.Name == x.Name })
		switch {
		case reached && isGoal:
			v := Violation{Goal: x.Name, Count: int64(*x.Got)}
			v.Claim, v.Witness = witnessOf(r, x.Name)
			found = append(found, v)
		case x.Verdict == results.Fail:
			others = append(others, x.Name)
		}
	}
	rank := func(v Violation) int {
		return slices.IndexFunc(wanted, func(g Goal) bool { return g.Name == v.Goal })
	}
	slices.SortStableFunc(found, func(a, b Violation) int { return rank(a) - rank(b) })
	slices.Sort(others)
	return found, others
}

// witnessOf returns the headline and the text of the first witness of a count; "" if there is none.
func witnessOf(r results.Report, count string) (claim, text string) {
	for _, f := range r.Findings {
		if f.Counts[count] == nil || len(f.Witnesses) == 0 {
			continue
		}
		i := max(slices.IndexFunc(f.Witnesses, func(w results.Witness) bool { return w.Kind+"s" == count }), 0)
		return sentence(scene.Headline(f.Witnesses[i], "two clients")), f.Witnesses[i].Text
	}
	return sentence(figure.Words(count)), ""
}

// sentence capitalizes the first letter of a text.
func sentence(text string) string { return strings.ToUpper(text[:1]) + text[1:] }
