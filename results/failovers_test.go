package results

import (
	"math"
	"strconv"
	"strings"
	"testing"
)

func TestFailoverRatesArePooled(t *testing.T) {
	t.Parallel()
	r := RateOf([]Failover{
		{Held: 150, DoubleGrants: 75, Promoted: new(true), Lag: new(int64(10))}, {Held: 140, Promoted: new(false)}, {Held: 160, Lag: new(int64(30))},
	})
	f := r.Figures()
	for name, want := range map[string]float64{
		"failovers": 3, "failovers_with_double_grants": 1, "failovers_with_double_grants_share": 1. / 3, "promotions": 1, "held_at_failover": 150, "lag_at_failover_bytes": 20,
		"double_grants_when_any": 75, "double_grants_per_failover": 25, "double_grants_per_held": 25. / 150, "double_grants_per_failover_high": 150 * 0.9057,
	} {
		if f[name] == nil || math.Abs(*f[name]-want) > 0.01 {
			t.Errorf("%s is %v, want %v", name, f[name], want)
		}
	}
	text := r.Text(func(f float64) string { return strconv.FormatFloat(f, 'f', 1, 64) })
	for _, want := range []string{"1 of 3 failovers had double grants: 33.3 % (95 %: 0.8 to 90.6)", "one that had any, 75.0 (1.0 to 150.0)", "a failover, 25.0", "of 150.0 locks held"} {
		if !strings.Contains(text, want) {
			t.Errorf("the text lacks %q: %s", want, text)
		}
	}
}

func TestFailoversWithoutDoubleGrantsHaveNoSize(t *testing.T) {
	t.Parallel()
	r := RateOf([]Failover{{Held: 100}, {Held: 100}})
	f := r.Figures()
	if f["double_grants_when_any"] != nil || f["promotions"] != nil || f["lag_at_failover_bytes"] != nil {
		t.Errorf("figures of what is not known: %v", f)
	}
	if high := *f["double_grants_per_failover_high"]; high < 84 || high > 85 { // 84.2 % of two, times 100
		t.Errorf("the upper end is %v", high)
	}
	if RateOf([]Failover{{}}).Figures()["double_grants_per_held"] != nil {
		t.Error("a rate for each of no locks")
	}
}
