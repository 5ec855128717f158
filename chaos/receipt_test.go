package chaos

import (
	"testing"

	"github.com/lockquake/lockquake/history"
)

// wantStatus wants a receipt that says so, with a time and evidence.
func wantStatus(t *testing.T, what string, r history.Receipt, want history.ReceiptStatus) {
	t.Helper()
	if r.Status != want {
		t.Errorf("%s: %s (%s), want %s", what, r.Status, r.Evidence, want)
	}
	if r.Time == 0 || r.Evidence == "" {
		t.Errorf("%s: a receipt needs a time and evidence: %+v", what, r)
	}
}
