package seed

import (
	"fmt"
	"math/bits"
	"testing"
)

// The numbers must never change: a run of an old version can then be repeated with a new one.
func TestSplitIsStable(t *testing.T) {
	for _, c := range []struct {
		seed uint64
		name string
		want uint64
	}{
		{0, "", wantEmpty}, {42, "client-1", wantClient1}, {42, "client-2", wantClient2}, {43, "client-1", wantOther},
	} {
		if got := Split(c.seed, c.name); got != c.want {
			t.Errorf("Split(%d, %q) = %#x, want %#x", c.seed, c.name, got, c.want)
		}
	}
	if got := Rand(42, "client-1").Uint64(); got != wantFirst {
		t.Errorf("first number of client-1 is %#x, want %#x", got, wantFirst)
	}
}

func TestSplitsAreFarApart(t *testing.T) {
	seen := map[uint64]string{}
	for s := range uint64(50) {
		for i := range 50 {
			name := fmt.Sprintf("client-%d", i)
			x := Split(s, name)
			if other, ok := seen[x]; ok {
				t.Fatalf("%d/%s and %s have the same seed", s, name, other)
			}
			seen[x] = fmt.Sprintf("%d/%s", s, name)
		}
	}
	if d := bits.OnesCount64(Split(42, "client-1") ^ Split(42, "client-2")); d < 12 {
		t.Errorf("neighbours differ in %d bits only", d)
	}
}

const (
	wantEmpty   = 0x813f0174a2367c13
	wantClient1 = 0x910fda0a6a54f86
	wantClient2 = 0x9c9e122bc0ee6fde
	wantOther   = 0x6fd76922f091dc28
	wantFirst   = 0x601be997078e96d7
)
