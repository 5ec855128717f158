package engine

import (
	"strings"
	"testing"
)

// TestSeveralHoldersAreRefused if the lock, or what it protects, is made for one.
func TestSeveralHoldersAreRefused(t *testing.T) {
	t.Parallel()
	take := "{do: acquire, user: A}"
	for _, c := range []struct{ steps, backend, workload, want string }{
		{"{do: acquire, user: A, reentrant: true}", "use: fake", "", "steps.0.reentrant: lock plain of fake is not re-entrant"},
		{take, "use: fake, permits: 2", "", "backend.permits: lock plain of fake is held by one user at a time"},
		{take, "use: memory, lock: semaphore, permits: 2", "resource: {use: register, guard: none}", "workload.resource: 2 users hold the lock at once"},
		{take, "use: memory, lock: semaphore, permits: 2", "", ""},
		{"{do: acquire, user: A, reentrant: true}", "use: memory, lock: counts-entries", "", ""},
	} {
		text := strings.Replace(directed(c.steps), "use: fake", c.backend, 1)
		text = strings.Replace(text, "resource: {use: register, guard: none}", c.workload, 1)
		_, err := Check((&testbed{t: t}).options(text))
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s of %s: %v, want %q", c.steps, c.backend, err, c.want)
		}
	}
}
