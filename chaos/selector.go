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
	text    string
	parts   []part     // what any of them picks is picked
	choices []Selector // one of them is drawn; then there are no parts
}

// part is a word or a name.
type part struct {
	text string
	word string // one of selectorWords, or "" for a node
	lock string // for holder(LOCK), leader(LOCK), followers(LOCK)
}

// ParseSelector reads a target: a word such as "leader", "holder(lock-0)", or one of the given names of nodes; several of
// them with commas between; or alternatives with " or " between, of which one is drawn for each injection. A holder stands
// alone.
func ParseSelector(text string, nodes []string) (Selector, error) {
	if strings.Contains(text, alternatively) {
		return parseAlternatives(text, nodes)
	}
	return parseSelector(text, strings.Split(text, ","), nodes, selectorWords)
}

// ParseFar reads the other ends of a link fault: the words and names of targets but holder, and the word rest, for everybody
// who is no target.
func ParseFar(far Names, nodes []string) (Selector, error) {
	words := append(slices.DeleteFunc(slices.Clone(selectorWords), func(w string) bool { return w == "holder" }), Rest)
	return parseSelector(strings.Join(far, ", "), far, nodes, words)
}

func parseSelector(text string, list, nodes, words []string) (Selector, error) {
	s := Selector{text: text}
	for _, one := range list {
		p, err := parsePart(strings.TrimSpace(one), nodes, words)
		if err != nil {
			return Selector{}, err
		}
		if p.word == "holder" && len(list) > 1 {
			return Selector{}, fmt.Errorf("%s stands alone: it is found by its grant", p.text)
		}
		s.parts = append(s.parts, p)
	}
	return s, nil
}

func parsePart(text string, nodes, words []string) (part, error) {
	m := lockForm.FindStringSubmatch(text)
	switch {
	case m != nil && slices.Contains(words, m[1]):
		return part{text: text, word: m[1], lock: m[2]}, nil
	case slices.Contains(words, text):
		return part{text: text, word: text}, nil
	case slices.Contains(nodes, text):
		return part{text: text}, nil
	}
	kinds := slices.Clone(words)
	for _, w := range []string{"leader", "followers", "holder"} {
		if slices.Contains(words, w) {
			kinds = append(kinds, w+"(LOCK)")
		}
	}
	return part{}, fmt.Errorf("there is no target %q; targets are %s, or a node: %s", text, strings.Join(kinds, ", "), strings.Join(nodes, ", "))
}

// String returns the selector as it was written.
func (s Selector) String() string { return s.text }

// Parts returns the words and names that it is made of, those of all alternatives.
func (s Selector) Parts() []string {
	var out []string
	for _, c := range s.choices {
		out = append(out, c.Parts()...)
	}
	for _, p := range s.parts {
		out = append(out, p.text)
	}
	return out
}

// Settle draws one of the alternatives, and returns it with one, minority and majority replaced by servers that are drawn
// now; the other words and the names stay.
func (s Selector) Settle(servers []string, random *rand.Rand) Selector {
	s = s.draw(random)
	n := len(servers)
	var parts []part
	var texts []string
	for _, p := range s.parts {
		k := 0
		switch p.word {
		case "one":
			k = min(n, 1)
		case "minority":
			k = (n - 1) / 2
		case "majority":
			k = min(n, n/2+1)
		default:
			parts, texts = append(parts, p), append(texts, p.text)
			continue
		}
		chosen := random.Perm(n)[:max(k, 0)]
		slices.Sort(chosen)
		for _, c := range chosen {
			parts, texts = append(parts, part{text: servers[c]}), append(texts, servers[c])
		}
	}
	return Selector{text: strings.Join(texts, ", "), parts: parts}
}

// Named returns the nodes that the selector names.
func (s Selector) Named() []string {
	var out []string
	for _, p := range s.parts {
		if p.word == "" {
			out = append(out, p.text)
		}
	}
	return out
}

// Holder tells whether the target is the client that holds a lock, and which lock; "" means whichever is granted next.
// Resolve cannot find it.
func (s Selector) Holder() (lock string, ok bool) {
	if len(s.parts) != 1 {
		return "", false
	}
	return s.parts[0].lock, s.parts[0].word == "holder"
}

// Leader tells whether the target is the node that leads, and by which fact that is asked.
func (s Selector) Leader(service Observer) (fact string, ok bool) {
	if service == nil || len(s.parts) != 1 || s.parts[0].word != "leader" {
		return "", false
	}
	return s.parts[0].fact(service), true
}

// fact is what the servers are asked: their role for the named lock where the service tells them apart, else their role.
func (p part) fact(service Observer) string {
	if _, ok := service.Facts()[FactRole+":LOCK"]; ok && p.lock != "" {
		return FactRole + ":" + p.lock
	}
	return FactRole
}

// View is the run's nodes as a selector sees them.
type View struct {
	All, Servers, Clients []Node
	// Except are the targets, which are never at the other end of their own links.
	Except  []Node
	Service Observer   // nil where there is none
	Random  *rand.Rand // for one, minority and majority
}

// Resolve returns the targets as they are now, at least one, in the order of the view.
func (s Selector) Resolve(ctx context.Context, v View) ([]Node, error) {
	var picked []Node
	s = s.draw(v.Random)
	for _, p := range s.parts {
		nodes, err := p.resolve(ctx, v)
		if err != nil {
			return nil, err
		}
		picked = append(picked, nodes...)
	}
	out := without(picked, v.Except)
	if len(out) == 0 {
		return nil, fmt.Errorf("target %s: none among %d servers and %d clients", s.text, len(without(v.Servers, v.Except)), len(without(v.Clients, v.Except)))
	}
	slices.SortStableFunc(out, func(a, b Node) int { return slices.Index(v.All, a) - slices.Index(v.All, b) })
	return slices.Compact(out), nil
}

// without returns the nodes that are not among the others.
func without(nodes, others []Node) []Node {
	return slices.DeleteFunc(slices.Clone(nodes), func(n Node) bool { return slices.Contains(others, n) })
}

// resolve returns what one part picks. How many a minority and a majority are goes by all servers; they are drawn from those
// that are not excepted, so that a majority is one without the targets.
func (p part) resolve(ctx context.Context, v View) ([]Node, error) {
	n := len(v.Servers)
	switch p.word {
	case "one":
		return pick(v, p.text, min(n, 1))
	case "minority":
		return pick(v, p.text, (n-1)/2)
	case "majority":
		return pick(v, p.text, min(n, n/2+1))
	case "all":
		return v.Servers, nil
	case "clients":
		return v.Clients, nil
	case Rest:
		return v.All, nil
	case "leader", "followers":
		return p.byRole(ctx, v)
	case "holder":
		return nil, errors.New("a holder is found by its grant")
	}
	var out []Node
	for _, node := range v.All {
		if node.Name() == p.text {
			out = append(out, node)
		}
	}
	return out, nil
}

// pick draws k servers.
func pick(v View, word string, k int) ([]Node, error) {
	servers := without(v.Servers, v.Except)
	if k > len(servers) {
		return nil, fmt.Errorf("target %s: %d servers of %d, and there are %d beside the targets", word, k, len(v.Servers), len(servers))
	}
	if k <= 0 {
		return nil, nil
	}
	chosen := v.Random.Perm(len(servers))[:k]
	slices.Sort(chosen)
	out := make([]Node, k)
	for i, c := range chosen {
		out[i] = servers[c]
	}
	return out, nil
}

// byRole asks every server for its role, now: a leader that was remembered is a follower by the next fault.
func (p part) byRole(ctx context.Context, v View) ([]Node, error) {
	if v.Service == nil {
		return nil, fmt.Errorf("target %s: there is no service to ask for a %s", p.text, FactRole)
	}
	var leaders, followers []Node
	var answers []string
	fact := p.fact(v.Service)
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
	case p.word == "leader" && len(leaders) > 1:
		return nil, fmt.Errorf("target %s: more than one (%s); where locks have leaders of their own, write leader(LOCK)", p.text, said)
	case p.word == "leader" && len(leaders) == 1:
		return leaders, nil
	case p.word == "followers" && len(followers) > 0:
		return followers, nil
	}
	return nil, fmt.Errorf("target %s: none (%s)", p.text, said)
}
