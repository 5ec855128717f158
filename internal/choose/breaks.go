package choose

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/internal/suite"
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/scenarios"
)

// breaksOf lists the stories that demand a violation of a lock, the worst first; counts come in the order of the
// checkers. It includes stories of another right lock of the same service that demand a double grant: there the
// service itself broke its promise.
func (c Catalog) breaksOf(b backends.Backend, lock string) []Breaks {
	var order []string
	for _, q := range c.Checkers.Quantities() {
		if q.Tone == results.Violation {
			order = append(order, q.Name)
		}
	}
	var out []Breaks
	for i, s := range c.Stories {
		twin := i > 0 && s.File == c.Stories[i-1].File // its world differs in a detail that does not matter here
		if twin || s.Backend.Use != b.Name {
			continue
		}
		l, ok := b.Lock(s.Backend.Lock)
		if !ok || l.Wrong != "" || slices.ContainsFunc(s.Backend.Params.Keys(), backends.Misuse) {
			continue
		}
		x := Breaks{Story: s.Name, Counts: demanded(s, order)}
		if l.Name != lock {
			x.Lock = l.Name
		}
		if len(x.Counts) == 0 || x.Lock != "" && x.Counts[0] != order[0] {
			continue
		}
		out = append(out, x)
	}
	telling := func(x Breaks) int { // stories named after the service are about it
		if strings.HasPrefix(x.Story, b.Name) {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(out, func(a, b Breaks) int {
		return cmp.Or(
			slices.Index(order, a.Counts[0])-slices.Index(order, b.Counts[0]),
			len(a.Lock)-len(b.Lock), // stories of the lock itself first
			telling(a)-telling(b),
		)
	})
	return out
}

// demanded returns the counts that a scenario demands to be at least one, in the given order.
func demanded(s scenarios.Scenario, order []string) (out []string) {
	for _, e := range s.Expect {
		some := e.Op == ">" || (e.Op == ">=" || e.Op == "=") && e.Value > 0
		if some && slices.Contains(order, e.Name) {
			out = append(out, e.Name)
		}
	}
	slices.SortFunc(out, func(a, b string) int { return slices.Index(order, a) - slices.Index(order, b) })
	return out
}

// Catalog holds the services and stories to choose from.
type Catalog struct {
	Backends []backends.Backend
	Stories  []scenarios.Scenario // each before its twins
	Checkers results.Checkers
}

// Rows returns the locks named as BACKEND, BACKEND/LOCK or "BACKEND/*". Without names it returns all right locks of
// services that have servers, or with quick the default lock of each such service.
func (c Catalog) Rows(names []string, quick bool) (out []Row, err error) {
	add := func(b backends.Backend, l backends.Lock) {
		out = append(out, Row{
			Backend: b.Name, Lock: l.Name, Doc: l.Doc, Token: string(cmp.Or(l.Offers.Token, backends.TokenNone)),
			Waits:  l.Offers.Blocking,
			Breaks: c.breaksOf(b, l.Name),
		})
	}
	for _, name := range names {
		backend, lock, _ := strings.Cut(name, "/")
		b, locks, err := suite.Locks(backend, lock, c.Backends)
		if err == nil && b.InProcess {
			err = fmt.Errorf("%w to compare: %s has no servers to kill", suite.ErrNoLock,
				b.Name)
		}
		if err != nil {
			return nil, err
		}
		for _, l := range locks {
			add(b, l)
		}
	}
	for _, b := range c.Backends {
		if len(names) > 0 || b.InProcess {
			continue
		}
		for i, l := range b.Locks {
			if l.Wrong == "" && (i == 0 || !quick) {
				add(b, l)
			}
		}
	}
	return out, nil
}
