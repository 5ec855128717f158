package links

// DoAround is the order that tells what acts on the packets of a process, put there by us or not: no arguments,
// answered with Around.
const DoAround = "around"

// Around is what is put on the links of a process.
type Around struct {
	Links  []string `json:"links,omitempty"`  // packet filter tables and traffic control of its network namespace
	Shared bool     `json:"shared,omitempty"` // it has no network namespace of its own: nothing can be put on its links
}
