package results

import (
	"slices"
	"testing"

	"github.com/lockquake/lockquake/history"
)

// TestMissingMajority is certain only of what receipts say stood all the time.
func TestMissingMajority(t *testing.T) {
	t.Parallel()
	three := []string{"n1", "n2", "n3"}
	kill := func(on ...string) history.Fault {
		return history.Fault{Targets: on, Start: 90, Bit: 100, End: 900, Traits: &history.Traits{Kills: true}, Receipt: history.Receipt{Status: history.Installed}}
	}
	cut := func(on, peers []string) history.Fault {
		f := kill(on...)
		f.Peers, f.Traits = peers, &history.Traits{Cuts: true}
		return f
	}
	pause := kill("n1", "n2")
	pause.Traits, pause.Undo = &history.Traits{Halts: true}, 500
	unseen := kill("n1", "n2")
	unseen.Receipt.Status = history.NotInstalled
	slow := cut([]string{"n3", "client-1"}, []string{"n1", "n2"})
	slow.Traits = &history.Traits{}
	for name, c := range map[string]struct {
		faults   []history.Fault
		client   string
		from, to int64
		apart    bool
		left     []string
		missing  bool
	}{
		"nothing is broken":           {nil, "client-1", 200, 300, false, three, false},
		"one of three dead":           {[]history.Fault{kill("n1")}, "", 200, 300, false, three[1:], false},
		"two of three dead":           {[]history.Fault{kill("n1", "n2")}, "", 200, 300, true, three[2:], true},
		"by two faults":               {[]history.Fault{kill("n1"), kill("n3")}, "client-1", 200, 300, false, three[1:2], true},
		"not yet dead":                {[]history.Fault{kill("n1", "n2")}, "", 95, 300, true, three, false},
		"up again":                    {[]history.Fault{kill("n1", "n2")}, "", 800, 901, true, three, false},
		"not seen dead":               {[]history.Fault{unseen}, "", 200, 300, true, three, false},
		"paused":                      {[]history.Fault{pause}, "", 200, 500, false, three[2:], true},
		"run again":                   {[]history.Fault{pause}, "", 200, 501, false, three, false},
		"cut off with one":            {[]history.Fault{cut([]string{"n3", "client-1"}, []string{"n1", "n2"})}, "client-1", 200, 300, false, three[2:], true},
		"the others are no client's":  {[]history.Fault{cut([]string{"n3", "client-1"}, []string{"n1", "n2"})}, "", 200, 300, false, three[:2], false},
		"by the other side's name":    {[]history.Fault{cut([]string{"n1", "n2"}, []string{"n3", "client-1"})}, "client-1", 200, 300, false, three[2:], true},
		"one link is enough":          {[]history.Fault{cut([]string{"client-1"}, []string{"n1", "n2"})}, "client-1", 200, 300, false, three[2:], false},
		"but not where each is asked": {[]history.Fault{cut([]string{"client-1"}, []string{"n1", "n2"})}, "client-1", 200, 300, true, three[2:], true},
		"slow is not cut":             {[]history.Fault{slow}, "client-1", 200, 300, false, three, false},
	} {
		m := &Majority{Servers: three, Apart: c.apart}
		if left, missing := m.Missing(c.faults, c.client, c.from, c.to); missing != c.missing || !slices.Equal(left, c.left) {
			t.Errorf("%s: %t, left %q; want %t, %q", name, missing, left, c.missing, c.left)
		}
	}
	if _, missing := (*Majority)(nil).Missing([]history.Fault{kill("n1")}, "", 200, 300); missing {
		t.Error("one server needs no majority")
	}
	m := Majority{Servers: three}
	for want, left := range map[string][]string{"none of the 3 servers": nil, "n2 alone, of 3 servers": {"n2"}, "only n1 and n2, of 3 servers": {"n1", "n2"}} {
		if got := m.Left(left); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
