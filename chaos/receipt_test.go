package chaos

import (
	"testing"

	"github.com/lockquake/lockquake/history"
)

// TestJoinedReceiptIsTheWorstAndTheLast puts the worst and the latest receipt at each place of the list.
func TestJoinedReceiptIsTheWorstAndTheLast(t *testing.T) {
	late := history.Receipt{Status: history.Installed, Time: 9, Evidence: "late"}
	bad := history.Receipt{Status: history.Indeterminate, Time: 3, Evidence: "bad"}
	for _, list := range [][]history.Receipt{{late, bad}, {bad, late}} {
		if got := joined(list); got.Time != 9 || got.Status != history.Indeterminate {
			t.Errorf("%+v joined: %+v", list, got)
		}
	}
}
