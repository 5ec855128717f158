package access

import (
	"fmt"
	"time"

	"github.com/lockquake/lockquake/backends"
)

// QuorumParams is what a client process is told that asks independent servers.
type QuorumParams struct {
	// ClockDrift is the part of the TTL by which the clocks of the servers and of the client may differ within it.
	// Another 2 ms are taken off for what Redis' own expiry may be late.
	ClockDrift float64 `yaml:"clock_drift" json:"clock_drift"`
	// NodeTimeout bounds one command to one server, connecting included. It should be small against the TTL, or a dead
	// server eats the validity up; it may be as long as the TTL to show just that. The default is redsync's: a
	// twentieth of the TTL.
	NodeTimeout time.Duration `yaml:"node_timeout" json:"node_timeout_ns"`
	// Order is "parallel" (all servers at once, as libraries do) or "sequential" (one after the other, as published).
	Order string `yaml:"order" json:"order"`
	// Elapsed is the clock by which a client measures how long asking took: "monotonic", or "wall", as implementations
	// do that subtract two times of day. A wall clock that is set back meanwhile hides that the validity is over.
	Elapsed string `yaml:"elapsed" json:"elapsed,omitempty"`
	// Release is whom a client asks to delete its key: "all" servers, or those that "granted" it. The key stays on a
	// server whose yes was lost.
	Release string         `yaml:"release" json:"release,omitempty"`
	Retry   backends.Retry `yaml:"retry" json:"retry"`
}

// The orders in which servers are asked.
const (
	OrderParallel   = "parallel"
	OrderSequential = "sequential"
)

// The clocks by which a client may measure how long asking took, and whom it may ask to delete its key.
const (
	ElapsedMonotonic = "monotonic"
	ElapsedWall      = "wall"
	ReleaseAll       = "all"
	ReleaseGranted   = "granted"
)

// QuorumDefaults are the parameters of a scenario that sets none.
func QuorumDefaults(ttl time.Duration) QuorumParams {
	return QuorumParams{
		ClockDrift:  0.01,
		NodeTimeout: max(ttl/20, time.Millisecond),
		Order:       OrderParallel,
		Elapsed:     ElapsedMonotonic,
		Release:     ReleaseAll,
		Retry:       backends.Retry{Delay: 50 * time.Millisecond, Jitter: 0.8},
	}
}

// Drift is what a holder takes off a promise of length ttl.
func (p QuorumParams) Drift(ttl time.Duration) time.Duration {
	return time.Duration(float64(ttl)*p.ClockDrift) + 2*time.Millisecond
}

// End returns when the validity of keys with this TTL ends that were asked for at start, before the first request.
func (p QuorumParams) End(start time.Time, ttl time.Duration) time.Time {
	return start.Add(ttl - p.Drift(ttl))
}

// Late returns by how much the validity was over when the replies were in, as the client's clock has it.
func (p QuorumParams) Late(end time.Time) time.Duration {
	if p.Elapsed == ElapsedWall {
		return time.Now().Round(0).Sub(end.Round(0)) // without the monotonic readings
	}
	return time.Since(end)
}

// Check names the key that is wrong.
func (p QuorumParams) Check(ttl time.Duration) error {
	if err := backends.CheckDuration("node_timeout", p.NodeTimeout, time.Millisecond); err != nil {
		return err
	}
	switch {
	case p.NodeTimeout > ttl:
		return fmt.Errorf("node_timeout is %s; it must be at most the ttl (%s), and should be a small part of it",
			p.NodeTimeout, ttl)
	case p.ClockDrift < 0 || p.ClockDrift >= 1:
		return fmt.Errorf("clock_drift is %g; it must be a part of the ttl, from 0 to below 1, such as 0.01",
			p.ClockDrift)
	case p.Drift(ttl) >= ttl:
		return fmt.Errorf("clock_drift is %g; with the 2ms beside it, it leaves nothing of the ttl (%s)", p.ClockDrift,
			ttl)
	case p.Order != OrderParallel && p.Order != OrderSequential:
		return fmt.Errorf("order is %q; it must be %s or %s", p.Order, OrderParallel, OrderSequential)
	case p.Elapsed != ElapsedMonotonic && p.Elapsed != ElapsedWall:
		return fmt.Errorf("elapsed is %q; it must be %s or %s", p.Elapsed, ElapsedMonotonic, ElapsedWall)
	case p.Release != ReleaseAll && p.Release != ReleaseGranted:
		return fmt.Errorf("release is %q; it must be %s or %s", p.Release, ReleaseAll, ReleaseGranted)
	}
	return p.Retry.Check()
}

// DecodeQuorum decodes what a client process was told.
func DecodeQuorum(a backends.Access) (QuorumParams, error) {
	p := QuorumDefaults(a.TTL)
	if err := backends.DecodeParams(a.Params, &p); err != nil {
		return p, fmt.Errorf("parameters of redlock: %w", err)
	}
	return p, nil
}
