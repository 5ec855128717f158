//go:build integration

package cluster

import (
	"fmt"
	"testing"
	"time"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/chaos/links"
	"github.com/lockquake/lockquake/internal/agent/all"
)

// TestOverlappingLinkFaults injects two faults on one link, from both ends, and heals them in both orders: each heal
// must be distinguished from the other fault's effect. In a third round one comes while the other is being healed.
func TestOverlappingLinkFaults(t *testing.T) {
	needRoot(t)
	t.Parallel()
	p, err := NewLocal(LocalOptions{Mechanisms: all.All(), Self: testBinary(t)})
	if err != nil {
		t.Fatal(err)
	}
	_, one, two, _ := opened(t, p, "toverlap")
	lanes := &chaos.LinkFaults{}
	from := func(a, b *Node) chaos.Scope {
		return chaos.Scope{On: []chaos.Node{a}, Peers: []chaos.Node{b}, LinkFaults: lanes}
	}
	put := func(fault string, s chaos.Scope) chaos.Heal {
		t.Helper()
		// Overlaps with other faults are not tested here: a link that is already cut cannot be seen to be cut.
		heal, r, err := inject(t, fault, map[string]string{"loss": "{share: 40%}", "delay": "{by: 300ms}", "partition": "{}"}[fault], s)
		t.Logf("%s on %s: %s, %s", fault, s.On[0].Name(), r.Status, r.Evidence)
		if err != nil {
			t.Error(err)
		}
		return heal
	}
	for _, pair := range [][2]string{{"partition", "loss"}, {"delay", "loss"}, {"partition", "partition"}} {
		for _, order := range [][2]int{{0, 1}, {1, 0}} {
			t.Run(fmt.Sprintf("%s, %s from the other end, healed %v", pair[0], pair[1], order), func(t *testing.T) {
				heals := []chaos.Heal{put(pair[0], from(one, two)), put(pair[1], from(two, one))}
				for _, i := range order {
					healed(t, pair[i], heals[i])
				}
				passes(t, one, two)
			})
		}
		t.Run(fmt.Sprintf("%s while %s is healed", pair[0], pair[1]), func(t *testing.T) {
			heal, later := put(pair[1], from(one, two)), make(chan chaos.Heal)
			go func() {
				time.Sleep(50 * time.Millisecond) // the rules are gone, and the link is being looked at
				later <- put(pair[0], from(two, one))
			}()
			healed(t, pair[1], heal)
			healed(t, pair[0], <-later)
			passes(t, one, two)
		})
	}
}

// passes checks that all of some datagrams arrive both ways.
func passes(t *testing.T, a, b *Node) {
	t.Helper()
	links, err := a.Links.MeasureLinks(t.Context(), []chaos.Node{b}, links.MeasureArgs{
		Peers: make([]links.ProbeEnd, 1), Count: 200, Every: time.Millisecond, Out: true, In: true, Patience: 2 * time.Second,
	})
	if err != nil || len(links) != 1 || links[0].Out.Arrived != 200 || links[0].In.Arrived != 200 {
		t.Errorf("after all heals: %+v, %v", links, err)
	}
}
