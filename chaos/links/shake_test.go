package links

import (
	"errors"
	"slices"
	"testing"

	"github.com/lockquake/lockquake/chaos"
)

// TestAtOwnEnd checks what each link fault needs with external peers, or that it is refused.
func TestAtOwnEnd(t *testing.T) {
	for _, c := range []struct {
		fault, params string
		needs         []chaos.Capability // nil: it is refused
	}{
		{"partition", "{}", []chaos.Capability{CanFilter}},
		{"delay", "{by: 10ms}", []chaos.Capability{CanQueue}},
		{"delay", "{by: 10ms, direction: in}", []chaos.Capability{CanQueue}},
		{"delay", "{by: 10ms, direction: out}", []chaos.Capability{CanShape}},
		{"delay", "{by: 10ms, engine: netem}", nil},
		{"delay", "{by: 10ms, engine: netem, direction: out}", []chaos.Capability{CanNetem}},
		{"loss", "{share: 10%}", []chaos.Capability{CanQueue}},
		{"reorder", "{share: 10%}", []chaos.Capability{CanQueue}},
		{"corrupt", "{share: 10%}", []chaos.Capability{CanQueue}},
		{"duplicate", "{share: 10%}", nil},
		{"duplicate", "{share: 10%, direction: out}", []chaos.Capability{CanNetem}},
		{"rate", "{limit: 1mbit}", nil},
		{"rate", "{limit: 1mbit, direction: out}", []chaos.Capability{CanThrottle}},
		{"hold-back", "{to: leader}", nil},
	} {
		f, ok := newFault(t, c.fault, c.params).(chaos.OneEnded)
		if !ok {
			t.Errorf("%s says nothing of far ends that are somebody else's", c.fault)
			continue
		}
		needs, err := f.AtOwnEnd()
		if !slices.Equal(needs, c.needs) || (err != nil) != (c.needs == nil) || err != nil && !errors.As(err, new(chaos.Unavailable)) {
			t.Errorf("%s %s needs %v, %v; want %v", c.fault, c.params, needs, err, c.needs)
		}
	}
}

// TestBurstFits checks that the burst that shows a rate fits into the token bucket's queue: the excess would be dropped
// and show nothing.
func TestBurstFits(t *testing.T) {
	for _, limit := range []Bits{leastRate, 500_000, 1_000_000, 20_000_000, mostRate} {
		rate := uint64(limit) / 8
		room := int(TBFBurst(rate)) + max(int(rate/5), 10*1600)
		burst := throttle{Limit: limit}.burst()
		if wire := BurstSize + 42; burst+wire > room || burst <= int(TBFBurst(rate)) {
			t.Errorf("at %v a burst of %d bytes; there is room for %d, of which %d pass at once", limit, burst, room, TBFBurst(rate))
		}
	}
}
