package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
)

// selectorWords are the targets that are no node's name. Those but holder and clients pick among the servers.
var selectorWords = []string{"one", "minority", "majority", "all", "leader", "followers", "holder", "clients"}

// lockForm is a target that names a lock.
var lockForm = regexp.MustCompile(`^(holder|leader|followers)\(([^()\s]+)\)$`)

// leading are the answers to FactRole of a node that leads, aside those of one that takes no part: it watches the others, or has
// nothing to do with the lock that was named.
var (
	leading = []string{"leader", "primary", "master"}
	aside   = []string{"sentinel", "none"}
)

// Selector says what a fault is aimed at. It is resolved when the fault is injected.
type Selector struct {
	text string
	word string // one of selectorWords, or "" for a node
	lock string // for holder(LOCK), leader(LOCK), followers(LOCK)
}

// ParseSelector reads a target: a word such as "leader", "holder(lock-0)", or one of the given names of nodes.
func ParseSelector(text string, nodes []string) (Selector, error) {
	switch m := lockForm.FindStringSubmatch(text); {
	case m != nil:
		return Selector{text: text, word: m[1], lock: m[2]}, nil
	case slices.Contains(selectorWords, text):
		return Selector{text: text, word: text}, nil
	case slices.Contains(nodes, text):
		return Selector{text: text}, nil
	}
	return Selector{}, fmt.Errorf("there is no target %q; targets are %s, leader(LOCK), followers(LOCK), holder(LOCK), or a node: %s", text,
		strings.Join(selectorWords, ", "), strings.Join(nodes, ", "))
}

// String returns the selector as it was written.
func (s Selector) String() string { return s.text }

// Holder tells whether the target is the client that holds a lock, and which lock; "" means whichever is granted next.
// Resolve cannot find it.
func (s Selector) Holder() (lock string, ok bool) { return s.lock, s.word == "holder" }

// fact is what the servers are asked: their role for the named lock where the service tells them apart, else their role.
func (s Selector) fact(service Observer) string {
	if _, ok := service.Facts()[FactRole+":LOCK"]; ok && s.lock != "" {
		return FactRole + ":" + s.lock
	}
	return FactRole
}

// View is the run's nodes as a selector sees them.
type View struct {
	All, Servers, Clients []Node
	Service               Observer   // nil where there is none
	Random                *rand.Rand // for one, minority and majority
}

// Resolve returns the targets as they are now, at least one, in the order of the view.
func (s Selector) Resolve(ctx context.Context, v View) ([]Node, error) {
	n := len(v.Servers)
	var out []Node
	switch s.word {
	case "one":
		out = pick(v, min(n, 1))
	case "minority":
		out = pick(v, (n-1)/2)
	case "majority":
		out = pick(v, min(n, n/2+1))
	case "all":
		out = v.Servers
	case "clients":
		out = v.Clients
	case "leader", "followers":
		return s.byRole(ctx, v)
	case "holder":
		return nil, errors.New("a holder is found by its grant")
	default:
		for _, node := range v.All {
			if node.Name() == s.text {
				out = append(out, node)
			}
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("target %s: none among %d servers and %d clients", s.text, n, len(v.Clients))
	}
	return slices.Clone(out), nil
}

// pick draws k servers.
func pick(v View, k int) []Node {
	if k <= 0 {
		return nil
	}
	chosen := v.Random.Perm(len(v.Servers))[:k]
	slices.Sort(chosen)
	out := make([]Node, k)
	for i, c := range chosen {
		out[i] = v.Servers[c]
	}
	return out
}

// byRole asks every server for its role, now: a leader that was remembered is a follower by the next fault.
func (s Selector) byRole(ctx context.Context, v View) ([]Node, error) {
	if v.Service == nil {
		return nil, fmt.Errorf("target %s: there is no service to ask for a %s", s.text, FactRole)
	}
	var leaders, followers []Node
	var answers []string
	fact := s.fact(v.Service)
	for _, n := range v.Servers {
		asking, cancel := context.WithTimeout(ctx, askTimeout)
		role, err := v.Service.Ask(asking, n.Name(), fact)
		cancel()
		switch {
		case err != nil:
			answers = append(answers, fmt.Sprintf("%s: %v", n.Name(), err))
			continue
		case slices.Contains(leading, role):
			leaders = append(leaders, n)
		case slices.Contains(aside, role):
		default:
			followers = append(followers, n)
		}
		answers = append(answers, n.Name()+": "+role)
	}
	said := strings.Join(answers, ", ")
	switch {
	case s.word == "leader" && len(leaders) > 1:
		return nil, fmt.Errorf("target %s: more than one (%s); where locks have leaders of their own, write leader(LOCK)", s.text, said)
	case s.word == "leader" && len(leaders) == 1:
		return leaders, nil
	case s.word == "followers" && len(followers) > 0:
		return followers, nil
	}
	return nil, fmt.Errorf("target %s: none (%s)", s.text, said)
}
