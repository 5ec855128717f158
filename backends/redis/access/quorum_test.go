package access

import (
	"testing"
	"time"
)

// TestEnd counts the validity from before the first request, as published.
func TestEnd(t *testing.T) {
	p := QuorumDefaults(10 * time.Second)
	if p.NodeTimeout != 500*time.Millisecond {
		t.Errorf("with a TTL of 10s one server may take %s", p.NodeTimeout)
	}
	start := time.Now()
	if left := p.End(start, 10*time.Second).Sub(start); left != 10*time.Second-102*time.Millisecond {
		t.Errorf("of 10s are left %s", left)
	}
	p.ClockDrift = 0.1
	if left := p.End(start, time.Second).Sub(start); left != 898*time.Millisecond {
		t.Errorf("of 1s are left %s", left)
	}
}
