package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"

	"github.com/lockquake/lockquake/internal/node"
)

// word is a target that is not a node's name. One of draws, picks and byRole finds its nodes. A word without any of
// them is a holder, found by its grant.
type word struct {
	name   string
	of     node.Role                              // of the nodes that it may pick; "": any
	lock   bool                                   // it may name a lock: leader(LOCK)
	leads  bool                                   // it is for one node that leads
	far    bool                                   // it selects the peers of links, and is no target
	draws  func(n int) int                        // so many of n servers are drawn
	picks  func(v View) []Node                    // all of these
	byRole func(leaders, followers []Node) []Node // picks by the answers to FactRole
}

// words lists all of them. primary is another name for leader.
var words = []word{
	{name: "one", of: node.Server, draws: func(n int) int { return min(n, 1) }},
	{name: "minority", of: node.Server, draws: func(n int) int { return (n - 1) / 2 }},
	{name: "majority", of: node.Server, draws: func(n int) int { return min(n, n/2+1) }},
	{name: "all", of: node.Server, picks: func(v View) []Node { return v.Servers }},
	{
		name: "leader", of: node.Server, lock: true, leads: true,
		byRole: func(leaders, _ []Node) []Node { return leaders },
	},
	{name: "followers", of: node.Server, lock: true, byRole: func(_, followers []Node) []Node { return followers }},
	{name: "holder", of: node.Client, lock: true},
	{name: "clients", of: node.Client, picks: func(v View) []Node { return v.Clients }},
	{name: Rest, far: true, picks: func(v View) []Node { return v.All }},
}

// holds reports whether the word selects the client that holds a lock, which is found by its grant.
func (w word) holds() bool { return w.draws == nil && w.picks == nil && w.byRole == nil }

func (w word) isTarget() bool { return !w.far }

func (w word) isFar() bool { return !w.holds() }

// Targets returns the words that can find a target among these servers and the clients. Of words that pick the same
// nodes it returns one. If locks have leaders of their own, it also returns the role words with the given lock.
func Targets(service Observer, servers []string, lock string) []string {
	var facts map[string]string
	if service != nil {
		facts = service.Facts()
	}
	_, led := facts[FactRole]
	_, each := facts[FactRole+":LOCK"]
	var out []string
	for _, w := range words {
		n := len(servers)
		switch {
		case w.far:
		case w.draws != nil: // all of them are "all"
			if k := w.draws(n); 0 < k && k < n {
				out = append(out, w.name)
			}
		case w.byRole != nil && n < 2 || w.of == node.Server && w.picks != nil && n < 2:
		case w.byRole != nil:
			if led {
				out = append(out, w.name)
			}
			if each {
				out = append(out, w.name+"("+lock+")")
			}
		default:
			out = append(out, w.name)
		}
	}
	return out
}

// lockForm is a target that names a lock.
var lockForm = regexp.MustCompile(`^(\w+)\(([^()\s]+)\)$`)

// primary is the other name of leader in a target.
var primary = regexp.MustCompile(`^primary(\(|$)`)

// leading lists the answers to FactRole of a leader. aside lists those of a node that takes no part: it watches the
// others, or has nothing to do with the named lock.
var (
	leading = []string{"leader", "primary", "master"}
	aside   = []string{"sentinel", "none"}
)

// Selector selects the targets of a fault. It is resolved at the injection, since the leader or holder is unknown
// before. Settle makes the random choices from the seed, so that a schedule can be written down before it runs.
//
// Example: "minority or leader" with etcd-1 to etcd-5. Settle draws "minority" for the first injection and makes it
// "etcd-2, etcd-4"; for the second it draws "leader", which stays. When that one is due, Resolve asks all five for
// their role and finds etcd-3.
type Selector struct {
	text    string
	parts   []part     // the union of their picks
	choices []Selector // one of them is drawn; then there are no parts
}

// part is a word or a name.
type part struct {
	text string
	word *word  // nil for a node
	lock string // that it names
}

// ParseSelector parses a target: a word such as "leader" or "holder(lock-0)", or the name of a node. Commas join
// several of them. Alternatives are separated by " or "; one is drawn for each injection. A holder stands alone.
func ParseSelector(text string, nodes []string) (Selector, error) {
	if strings.Contains(text, alternatively) {
		return parseAlternatives(text, nodes)
	}
	return parseSelector(text, strings.Split(text, ","), nodes, word.isTarget)
}

// ParseFar parses the peers of a link fault: the words and names of targets except holder, and the word rest, for all
// nodes that are not targets.
func ParseFar(far Names, nodes []string) (Selector, error) {
	return parseSelector(strings.Join(far, ", "), far, nodes, word.isFar)
}

func parseSelector(text string, list, nodes []string, fits func(word) bool) (Selector, error) {
	s := Selector{text: text}
	for _, one := range list {
		p, err := parsePart(strings.TrimSpace(one), nodes, fits)
		if err != nil {
			return Selector{}, err
		}
		if p.word != nil && p.word.holds() && len(list) > 1 {
			return Selector{}, fmt.Errorf("%s cannot be combined: a holder is found by its grant", p.text)
		}
		s.parts = append(s.parts, p)
	}
	return s, nil
}

func parsePart(text string, nodes []string, fits func(word) bool) (part, error) {
	if !slices.Contains(nodes, text) {
		text = primary.ReplaceAllString(text, "leader$1")
	}
	name, lock := text, ""
	if m := lockForm.FindStringSubmatch(text); m != nil {
		name, lock = m[1], m[2]
	}
	i := slices.IndexFunc(words, func(w word) bool { return fits(w) && w.name == name && (lock == "" || w.lock) })
	switch {
	case i >= 0:
		return part{text: text, word: &words[i], lock: lock}, nil
	case slices.Contains(nodes, text):
		return part{text: text}, nil
	}
	var kinds, withLock []string
	for _, w := range words {
		if fits(w) {
			kinds = append(kinds, w.name)
		}
		if fits(w) && w.lock {
			withLock = append(withLock, w.name+"(LOCK)")
		}
	}
	return part{}, fmt.Errorf("there is no target %q; targets are %s, or a node: %s", text,
		strings.Join(append(kinds, withLock...), ", "), strings.Join(nodes, ", "))
}

// String returns the selector as it was written.
func (s Selector) String() string { return s.text }

// Parts returns its words and names, including those of all alternatives.
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

// Settle draws one of the alternatives and replaces one, minority and majority in it by servers drawn now. The other
// words and the names stay.
func (s Selector) Settle(servers []string, random *rand.Rand) Selector {
	s = s.draw(random)
	n := len(servers)
	var parts []part
	var texts []string
	for _, p := range s.parts {
		if p.word == nil || p.word.draws == nil {
			parts, texts = append(parts, p), append(texts, p.text)
			continue
		}
		chosen := random.Perm(n)[:max(p.word.draws(n), 0)]
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
		if p.word == nil {
			out = append(out, p.text)
		}
	}
	return out
}

// Holder reports whether the target is the client that holds a lock, and returns the lock; "" means the lock that is
// granted next. Resolve cannot find it.
func (s Selector) Holder() (lock string, ok bool) {
	if len(s.parts) != 1 {
		return "", false
	}
	return s.parts[0].lock, s.parts[0].word != nil && s.parts[0].word.holds()
}

// Leader reports whether one part of the target is the leader, and returns the fact by which it is found.
func (s Selector) Leader(service Observer) (fact string, ok bool) {
	for _, p := range s.parts {
		if service == nil || !p.leads() {
			continue
		}
		if ok {
			return "", false // two different leaders
		}
		fact, ok = p.fact(service), true
	}
	return fact, ok
}

func (p part) leads() bool { return p.word != nil && p.word.leads }

// fact returns the fact to ask for: the role for the named lock if the service has one per lock, else FactRole.
func (p part) fact(service Observer) string {
	if _, ok := service.Facts()[FactRole+":LOCK"]; ok && p.lock != "" {
		return FactRole + ":" + p.lock
	}
	return FactRole
}

// MayPick reports whether the selector may pick a node of that name and role.
func (s Selector) MayPick(name string, role node.Role) bool {
	return slices.ContainsFunc(s.choices, func(c Selector) bool { return c.MayPick(name, role) }) ||
		slices.ContainsFunc(s.parts, func(p part) bool {
			if p.word == nil {
				return p.text == name
			}
			return p.word.of == "" || p.word.of == role
		})
}

// View holds the nodes from which a selector picks.
type View struct {
	All, Servers, Clients []Node
	// Except are the targets, which are never peers of their own links.
	Except  []Node
	Service Observer   // nil where there is none
	Random  *rand.Rand // for one, minority and majority
}

// Resolve returns the current targets, at least one, in the order of the view.
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
		return nil, fmt.Errorf("target %s: none among %d servers and %d clients", s.text,
			len(without(v.Servers, v.Except)), len(without(v.Clients, v.Except)))
	}
	slices.SortStableFunc(out, func(a, b Node) int { return slices.Index(v.All, a) - slices.Index(v.All, b) })
	return slices.Compact(out), nil
}

// without returns the nodes that are not among the others.
func without(nodes, others []Node) []Node {
	return slices.DeleteFunc(slices.Clone(nodes), func(n Node) bool { return slices.Contains(others, n) })
}

// resolve returns the nodes that one part picks. The sizes of a minority and a majority depend on all servers, but they
// are drawn from those that are not excepted. So a majority of peers is one without the targets.
func (p part) resolve(ctx context.Context, v View) ([]Node, error) {
	switch {
	case p.word == nil:
	case p.word.draws != nil:
		return pick(v, p.text, p.word.draws(len(v.Servers)))
	case p.word.picks != nil:
		return p.word.picks(v), nil
	case p.word.byRole != nil:
		return p.byRole(ctx, v)
	default:
		return nil, errors.New("a holder is found by its grant")
	}
	var out []Node
	for _, n := range v.All {
		if n.Name() == p.text {
			out = append(out, n)
		}
	}
	return out, nil
}

// pick draws k servers at random.
func pick(v View, word string, k int) ([]Node, error) {
	servers := without(v.Servers, v.Except)
	if k > len(servers) {
		return nil, fmt.Errorf("target %s: %d servers of %d, but only %d are not targets", word, k,
			len(v.Servers), len(servers))
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

// byRole asks every server for its current role: after a fault a remembered leader may be a follower.
func (p part) byRole(ctx context.Context, v View) ([]Node, error) {
	if v.Service == nil {
		return nil, fmt.Errorf("target %s: there is no service to ask for a %s", p.text, FactRole)
	}
	var leaders, followers []Node
	var answers []string
	fact := p.fact(v.Service)
	for _, n := range v.Servers {
		asking, cancel := context.WithTimeout(ctx, AskTimeout)
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
	picked := p.word.byRole(leaders, followers)
	switch {
	case p.word.leads && len(picked) > 1:
		return nil, fmt.Errorf("target %s: more than one (%s); where locks have leaders of their own, write leader(LOCK)", p.text, said)
	case len(picked) > 0:
		return picked, nil
	}
	return nil, fmt.Errorf("target %s: none (%s)", p.text, said)
}

// alternatively separates alternatives, as in "leader or all". The seed draws one for each injection.
const alternatively = " or "

// parseAlternatives parses alternatives.
func parseAlternatives(text string, nodes []string) (Selector, error) {
	s := Selector{text: text}
	for one := range strings.SplitSeq(text, alternatively) {
		choice, err := parseSelector(strings.TrimSpace(one), strings.Split(one, ","), nodes, word.isTarget)
		if err != nil {
			return Selector{}, err
		}
		if _, ok := choice.Holder(); ok {
			return Selector{}, fmt.Errorf("%s cannot be combined: a holder is found by its grant", choice.text)
		}
		s.choices = append(s.choices, choice)
	}
	return s, nil
}

// draw returns one of the alternatives, all equally likely, or the selector itself if it has none.
func (s Selector) draw(random *rand.Rand) Selector {
	if len(s.choices) == 0 {
		return s
	}
	return s.choices[random.IntN(len(s.choices))]
}

// Several returns which part of the selector or its alternatives always picks more than one node: "minority is 2 of 6
// servers". It returns "" if it may be a single one. It assumes that all servers answer; a silent one is no follower.
func (s Selector) Several(servers, clients []string) string {
	for _, c := range s.choices {
		if why := c.Several(servers, clients); why != "" {
			return why
		}
	}
	if names := slices.Compact(slices.Sorted(slices.Values(s.Named()))); len(names) > 1 {
		return fmt.Sprintf("%s are %d nodes", strings.Join(names, ", "), len(names))
	}
	for _, p := range s.parts {
		of, kind, sure := len(servers), "servers", len(p.certain(servers, clients))
		switch {
		case p.word == nil:
			continue
		case p.word.draws != nil:
			sure = p.word.draws(of)
		case p.word.of == node.Client:
			of, kind = len(clients), "clients"
		}
		if sure > 1 && p.word.byRole != nil {
			return fmt.Sprintf("%s are more than one of %d servers", p.text, of)
		}
		if sure > 1 {
			return fmt.Sprintf("%s is %d of %d %s", p.text, sure, of, kind)
		}
	}
	return ""
}

// certain returns the nodes that the part always picks, or any set of that size. Few servers may follow a named lock,
// and with several kinds of servers some follow none.
func (p part) certain(servers, clients []string) []string {
	switch {
	case p.word == nil:
		return []string{p.text}
	case p.word.picks != nil && p.word.of == node.Client:
		return clients
	case p.word.picks != nil:
		return servers
	case p.word.byRole == nil || p.lock != "" || len(servers) == 0:
	case p.word.leads && len(servers) == 1:
		return servers
	case !p.word.leads && serverKind(servers[0]) == serverKind(servers[len(servers)-1]):
		return servers[1:] // one of them leads, whichever
	}
	return nil
}

// NeverLed returns why a leader that the selector names can never be found, or "".
func (s Selector) NeverLed(service Observer) string {
	l, ok := service.(Leaderless)
	if !ok {
		return ""
	}
	for _, c := range s.choices {
		if why := c.NeverLed(service); why != "" {
			return why
		}
	}
	for _, p := range s.parts {
		if !p.leads() {
			continue
		}
		if why := l.Leaderless(p.lock); why != "" {
			return fmt.Sprintf("%s can never be found: %s", p.text, why)
		}
	}
	return ""
}
