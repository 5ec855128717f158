package results

import (
	"reflect"
	"testing"

	"github.com/lockquake/lockquake/chaos"
	faults "github.com/lockquake/lockquake/chaos/all"
	"github.com/lockquake/lockquake/history"
)

// TestOldRecordsGetTodaysTraits: a record without traits gets those that the fault writes today.
func TestOldRecordsGetTodaysTraits(t *testing.T) {
	for name := range oldTraits {
		k, ok := chaos.Lookup(faults.Kinds(), name)
		if !ok {
			t.Errorf("there is no fault %s any more", name)
			continue
		}
		fault, err := k.New(func(any) error { return nil })
		if err != nil {
			fault = nil // it needs keys, and its words do not depend on them
		}
		f := history.Fault{Name: k.Name}
		giveTraits(&f)
		if want := k.Traits(fault); !reflect.DeepEqual(f.Traits, want) {
			t.Errorf("an old record of %s has %+v, a new one %+v", k.Name, *f.Traits, *want)
		}
	}
	// The same words mean nothing in the keys of another fault.
	for _, params := range []string{"how: stop", "direction: out", "direction: in"} {
		f := history.Fault{Name: "pause", Params: params}
		if giveTraits(&f); !reflect.DeepEqual(*f.Traits, oldTraits["pause"]) {
			t.Errorf("an old pause with %q has %+v", params, *f.Traits)
		}
	}
	own := &history.Traits{Kills: true}
	f := history.Fault{Name: "pause", Traits: own}
	if giveTraits(&f); f.Traits != own {
		t.Error("a record's own traits were replaced")
	}
}
