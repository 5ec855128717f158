package service

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/chaos/faulttest"
	"github.com/lockquake/lockquake/history"
)

// cache is a service that evicts keys.
type cache struct {
	archive
	seen       chaos.Filled
	fails      error
	stays      error // what keeps it from being emptied
	asked      string
	emptied    bool
	staysLarge bool
}

func (c *cache) FillMemory(_ context.Context, _, policy string) (chaos.Filled, func(context.Context) error, error) {
	c.asked = policy
	c.refuses = true
	return c.seen, func(context.Context) error {
		c.emptied, c.refuses = true, c.staysLarge
		return c.stays
	}, c.fails
}

func TestMaxMemory(t *testing.T) {
	for name, c := range map[string]struct {
		cache
		policy string
		want   history.ReceiptStatus
		says   string
	}{
		"keys are evicted":           {cache{seen: chaos.Filled{How: "full", Evicted: 3}}, "allkeys-lru", history.Installed, "a: full; 3 keys were evicted"},
		"none is":                    {cache{seen: chaos.Filled{How: "full"}}, "allkeys-lru", history.NotInstalled, "0 keys"},
		"a write is refused instead": {cache{seen: chaos.Filled{Refused: "OOM"}}, "volatile-ttl", history.NotInstalled, "a write: OOM"},
		"it refuses":                 {cache{seen: chaos.Filled{Refused: "OOM"}}, noEviction, history.Installed, "a write: OOM"},
		"it evicts instead":          {cache{seen: chaos.Filled{Evicted: 3}}, noEviction, history.NotInstalled, "3 keys"},
		"it cannot be told":          {cache{fails: errFull}, "allkeys-lru", history.NotInstalled, "fill a: NOSPACE"},
	} {
		heal, r, err := maxMemory{Policy: c.policy}.Inject(t.Context(), chaos.Scope{Service: wrapper{&c.cache}, On: []chaos.Node{faulttest.Node("a")}})
		if !errors.Is(err, c.fails) || c.asked != c.policy {
			t.Errorf("%s: %v, asked for %q", name, err, c.asked)
		}
		faulttest.WantStatus(t, name, r, c.want)
		if !strings.Contains(r.Evidence, c.says) {
			t.Errorf("%s: %q does not say %q", name, r.Evidence, c.says)
		}
		faulttest.Healed(t, name, heal)
		if !c.emptied {
			t.Errorf("%s: nothing was taken back", name)
		}
	}
}

func TestMaxMemoryThatStays(t *testing.T) {
	for name, c := range map[string]struct {
		cache
		want history.ReceiptStatus
	}{
		"it accepts no write afterwards":              {cache{staysLarge: true}, history.NotInstalled},
		"it takes writes, and keeps what it was sent": {cache{stays: errFull}, history.NotInstalled},
		"it is gone": {cache{stays: errFull, archive: archive{down: true}}, history.Indeterminate},
	} {
		heal, _, err := maxMemory{Policy: noEviction}.Inject(t.Context(), chaos.Scope{Service: wrapper{&c.cache}, On: []chaos.Node{faulttest.Node("a")}})
		if err != nil {
			t.Fatal(err)
		}
		r, err := heal(t.Context())
		if r.Status != c.want || (err == nil) != (c.want == history.Indeterminate) {
			t.Errorf("%s: %v, %v", name, r, err)
		}
	}
}

func TestPolicies(t *testing.T) {
	for policy, wrong := range map[string]bool{"": false, "noeviction": false, "volatile-ttl": false, "lru": true} {
		f, err := maxMemoryKind().New(func(into any) error {
			if policy != "" {
				into.(*maxMemory).Policy = policy
			}
			return nil
		})
		if (err != nil) != wrong || err != nil && !strings.Contains(err.Error(), "allkeys-lru, ") {
			t.Errorf("%q: %v, %v", policy, f, err)
		}
	}
}
