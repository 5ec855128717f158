package backends

// Found lists what finds the mistake of a deliberately wrong lock. All tests and documents take it from the lock.
type Found struct {
	// Checks are exactly the checks of the conformance suite that the lock fails. A check with a trailing "?" finds
	// the mistake only by chance.
	Checks []string
	// Stories are the stories of the default suite that are red. There is at least one.
	Stories []Finding
}

// Finding is a story of the default suite that finds a mistake.
type Finding struct {
	Story string
	Shows string // what it finds, such as "a double grant"
	// Reasons are prefixes of reasons in its verdict, such as "double_grants 0: found". The verdict has all of them.
	Reasons []string
}

// FoundIn returns the Found of a mistake that one story shows, by one reason.
func FoundIn(story, shows, reason string, checks ...string) Found {
	return Found{Checks: checks, Stories: []Finding{{Story: story, Shows: shows, Reasons: []string{reason}}}}
}
