// Package wait lets tests wait for other processes and goroutines. The patience only ends a test that would hang; no
// test is judged by how long a wait took.
package wait

import (
	"testing"
	"time"
)

// pause is the time between two calls of ok.
const pause = 5 * time.Millisecond

// Within calls ok again and again until it returns true, and reports whether it did so within the patience.
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

// Until calls ok again and again until it returns true, and fails the test if that takes longer than the patience.
func Until(t testing.TB, patience time.Duration, what string, ok func() bool) {
	t.Helper()
	if !Within(patience, ok) {
		t.Fatalf("not within %v: %s", patience, what)
	}
}
