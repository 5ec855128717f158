package chaos

import (
	"testing"

	"github.com/lockquake/lockquake/history"
)

// TestJoinedReceiptIsTheWorstAndTheLast puts the worst and the latest receipt at each place of the list.
func TestJoinedReceiptIsTheWorstAndTheLast(t *testing.T) {
	late := history.Receipt{Status: history.Installed, Time: 9, Sent: 5, Evidence: "late"}
	bad := history.Receipt{Status: history.Indeterminate, Time: 3, Sent: 2, Evidence: "bad"}
	unsent := history.Receipt{Status: history.Installed, Time: 4}
	for _, list := range [][]history.Receipt{{late, bad, unsent}, {unsent, bad, late}} {
		if got := joined(list); got.Time != 9 || got.Sent != 2 || got.Status != history.Indeterminate {
			t.Errorf("%+v joined: %+v", list, got)
		}
	}
}
