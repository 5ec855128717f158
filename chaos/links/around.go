package links

// DoAround is the order that lists what acts on the packets of a process, whether installed by us or not: no arguments,
// answered with Around.
const DoAround = "around"

// Around lists what acts on the links of a process.
type Around struct {
	Links  []string `json:"links,omitempty"`  // packet filter tables and traffic control of its network namespace
	Shared bool     `json:"shared,omitempty"` // it has no network namespace of its own, so its links take no faults
}
