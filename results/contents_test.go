package results

import "testing"

// TestLeftOfGrants: the grants explain objects up to 1 % of their number.
func TestLeftOfGrants(t *testing.T) {
	c := Contents{
		Before: map[string]Content{"keys": {N: 2}, "sessions": {Attached: true}},
		Loaded: map[string]Content{"keys": {N: 9000}, "sessions": {N: 14, PerUser: 2, Attached: true}},
		After:  map[string]Content{"keys": {N: 22, PerUser: 1, PerLock: 4}, "sessions": {}},
	}
	for _, want := range []struct {
		users, locks int
		grants       int64
		left         []Leftover
	}{
		{4, 2, 1000, nil},
		{4, 1, 1000, []Leftover{{"keys", 20, 18}}},
		{4, 1, 200, []Leftover{{"keys", 20, 10}, {"sessions", 14, 10}}},
		{4, 2, 799, []Leftover{{"keys", 20, 19}}},
	} {
		got := c.Left(want.users, want.locks, want.grants)
		if len(got) != len(want.left) || len(got) > 0 && got[0] != want.left[0] || len(got) > 1 && got[1] != want.left[1] {
			t.Errorf("of %d users, %d locks and %d grants is left %v, not %v", want.users, want.locks, want.grants, got, want.left)
		}
	}
}
