package node

import "strings"

// Hosts says how the nodes of a run are spread over a provider's machines. The zero value takes all hosts in turn.
type Hosts struct {
	Apart   bool   // no host has both a server and a node of another role
	Servers string // "key=value": servers only on hosts with that label; "": on any
	Clients string // the same for clients
}

// String returns the rule as a scenario writes it.
func (h Hosts) String() string {
	rule := "spread"
	if h.Apart {
		rule = "servers-apart-from-clients"
	}
	parts := []string{rule}
	for _, of := range []struct{ who, label string }{{"servers", h.Servers}, {"clients", h.Clients}} {
		if of.label != "" {
			parts = append(parts, of.who+" on "+of.label)
		}
	}
	return strings.Join(parts, ", ")
}
