package chaos

import "testing"

func TestThreadsInWords(t *testing.T) {
	t.Parallel()
	for want, threads := range map[string]map[string]int{
		"pid 7, all 6 threads stopped":                 {"T": 6},
		"pid 7, its only thread sleeping":              {"S": 1},
		"pid 7, of 7 threads 1 running, 6 sleeping":    {"R": 1, "S": 6},
		"pid 7, of 2 threads 1 in state ?, 1 sleeping": {"?": 1, "S": 1},
		"pid 7, no threads seen":                       {},
	} {
		if got := (ProcessState{PID: 7, Threads: threads}).String(); got != want {
			t.Errorf("%v is told as %q, should be %q", threads, got, want)
		}
	}
}
