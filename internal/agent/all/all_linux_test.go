package all

import "testing"

// If two mechanisms had an order of the same name, one would be hidden from the agent.
func TestEachOrderIsOfOneMechanism(t *testing.T) {
	seen := map[string]bool{}
	for _, m := range All() {
		for do, h := range m.Orders {
			if seen[do] || h.Do == nil {
				t.Errorf("the order %q is listed twice, or nobody carries it out", do)
			}
			seen[do] = true
		}
	}
	if len(seen) == 0 {
		t.Error("an agent can do nothing")
	}
}
