package batch

import "testing"

func TestSeedsDiffer(t *testing.T) {
	t.Parallel()
	a, b := DrawSeed(), DrawSeed()
	if a == b || a == 0 || b == 0 {
		t.Errorf("drew %d and %d", a, b)
	}
	// JSON readers keep 53 bits of a number.
	if a >= 1<<53 {
		t.Errorf("%d is too large for JSON", a)
	}
}
