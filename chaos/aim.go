package chaos

import (
	"fmt"
	"slices"
	"strings"
)

// Leaderless is an Observer of a service that knows beforehand where the target leader finds nobody, or more than one.
type Leaderless interface {
	// Leaderless says why no single server leads, of a lock or, with "", of all of them; "" where one may.
	Leaderless(lock string) string
}

// Crowd says which part of the selector, or of one of its alternatives, picks more than one node for certain: "minority is 2 of 6
// servers". It is "" where it may be one. Whoever does not answer is no follower, so those are reckoned with all servers well.
func (s Selector) Crowd(servers, clients []string) string {
	for _, c := range s.choices {
		if why := c.Crowd(servers, clients); why != "" {
			return why
		}
	}
	if names := slices.Compact(slices.Sorted(slices.Values(s.Named()))); len(names) > 1 {
		return fmt.Sprintf("%s are %d nodes", strings.Join(names, ", "), len(names))
	}
	n := len(servers)
	for _, p := range s.parts {
		picks, of, kind := 1, n, "servers"
		switch p.word {
		case "minority":
			picks = (n - 1) / 2
		case "majority":
			picks = min(n, n/2+1)
		case "all":
			picks = n
		case "clients":
			picks, of, kind = len(clients), len(clients), "clients"
		case "followers":
			// Those of one lock may be one, and of servers of several kinds some follow nobody.
			if p.lock == "" && n > 0 && serverKind(servers[0]) == serverKind(servers[n-1]) {
				picks = n - 1
			}
		}
		if picks > 1 && p.word == "followers" {
			return fmt.Sprintf("%s are more than one of %d servers", p.text, n)
		}
		if picks > 1 {
			return fmt.Sprintf("%s is %d of %d %s", p.text, picks, of, kind)
		}
	}
	return ""
}

// Unled says why a leader that the selector asks for can never be found, or "".
func (s Selector) Unled(service Observer) string {
	l, ok := service.(Leaderless)
	if !ok {
		return ""
	}
	for _, c := range s.choices {
		if why := c.Unled(service); why != "" {
			return why
		}
	}
	for _, p := range s.parts {
		if p.word != "leader" {
			continue
		}
		if why := l.Leaderless(p.lock); why != "" {
			return fmt.Sprintf("%s can never be found: %s", p.text, why)
		}
	}
	return ""
}

// Aim says why an injection on these targets can never be made as they are, with what would be right, or "".
func (k Kind) Aim(s Selector, service Observer, servers, clients []string) string {
	if why := s.Unled(service); why != "" {
		return why
	}
	why := s.Crowd(servers, clients)
	if !k.Single || why == "" {
		return ""
	}
	leader := "leader"
	if service != nil {
		if _, ok := service.Facts()[FactRole+":LOCK"]; ok {
			leader = "leader(LOCK)"
		}
	}
	return fmt.Sprintf("%s has one target at a time, and %s; write %s, one, or the name of one server", k.Name, why, leader)
}
