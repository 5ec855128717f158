package backends

// Found says what finds the mistake of a lock that is wrong on purpose. All tests and documents ask the lock for it.
type Found struct {
	// Checks are exactly those of the conformance suite that the lock fails. A check with "?" behind its name finds the
	// mistake by chance.
	Checks []string
	// Stories are those of the default suite that are red. There is at least one.
	Stories []Finding
}

// Finding is a story of the default suite that finds a mistake.
type Finding struct {
	Story string
	Shows string // what it finds, such as "a double grant"
	// Reasons are the beginnings of reasons in its verdict, such as "double_grants 0: found". The verdict has all of
	// them.
	Reasons []string
}

// FoundIn returns what finds a mistake that one story shows, for one reason.
func FoundIn(story, shows, reason string, checks ...string) Found {
	return Found{Checks: checks, Stories: []Finding{{Story: story, Shows: shows, Reasons: []string{reason}}}}
}
