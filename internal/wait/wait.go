// Package wait is how tests wait for what others do. The patience is there so that a test ends; no test judges by how
// long it took.
package wait

import (
	"testing"
	"time"
)

// pause is the pause between two looks.
const pause = 5 * time.Millisecond

// Within asks again and again until ok says so, and tells whether it did before the patience was over.
func Within(patience time.Duration, ok func() bool) bool {
	over := time.NewTimer(patience)
	defer over.Stop()
	for !ok() {
		select {
		case <-over.C:
			return ok()
		case <-time.After(pause):
		}
	}
	return true
}

// Until asks again and again until ok says so, and ends the test where that takes longer than the patience.
func Until(t testing.TB, patience time.Duration, what string, ok func() bool) {
	t.Helper()
	if !Within(patience, ok) {
		t.Fatalf("not within %v: %s", patience, what)
	}
}
