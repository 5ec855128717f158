package access

import (
	"fmt"
	"time"

	"github.com/lockquake/lockquake/backends"
)

// QuorumParams is what a client process gets that asks independent servers.
type QuorumParams struct {
	// ClockDrift is the share of the TTL by which the clocks of servers and client may differ within it. Another 2 ms
	// are subtracted because Redis' expiry may be late.
	ClockDrift float64 `yaml:"clock_drift" json:"clock_drift"`
	// NodeTimeout bounds one command to one server, including the connect. It should be small against the TTL,
	// otherwise a dead server uses up the validity; it may be as long as the TTL to show exactly that. The default is
	// redsync's: a twentieth of the TTL.
	NodeTimeout time.Duration `yaml:"node_timeout" json:"node_timeout_ns"`
	// Order is "parallel" (all servers at once, as libraries do) or "sequential" (one after the other, as published).
	Order string `yaml:"order" json:"order"`
	// Elapsed is the clock with which a client measures how long asking took. "monotonic" is the default. With "wall"
	// it subtracts two times of day, as some implementations do: if the wall clock is set back meanwhile, the end of
	// the validity goes unnoticed.
	Elapsed string `yaml:"elapsed" json:"elapsed,omitempty"`
	// Release is which servers a client asks to delete its key: "all", or those that "granted" it. With the latter
	// the key stays on a server whose yes was lost.
	Release string         `yaml:"release" json:"release,omitempty"`
	Retry   backends.Retry `yaml:"retry" json:"retry"`
}

// The orders in which servers are asked.
const (
	OrderParallel   = "parallel"
	OrderSequential = "sequential"
)

// The clocks with which a client measures how long asking took, and the servers that it asks to delete its key.
const (
	ElapsedMonotonic = "monotonic"
	ElapsedWall      = "wall"
	ReleaseAll       = "all"
	ReleaseGranted   = "granted"
)

// QuorumDefaults returns the parameters of a scenario that sets none.
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

// Drift returns what a holder subtracts from a promise of length ttl.
func (p QuorumParams) Drift(ttl time.Duration) time.Duration {
	return time.Duration(float64(ttl)*p.ClockDrift) + 2*time.Millisecond
}

// End returns the end of the validity of keys with this TTL. start is before the first request.
func (p QuorumParams) End(start time.Time, ttl time.Duration) time.Time {
	return start.Add(ttl - p.Drift(ttl))
}

// Late returns by how much the validity was over when the replies were in, by the client's clock.
func (p QuorumParams) Late(end time.Time) time.Duration {
	if p.Elapsed == ElapsedWall {
		return time.Now().Round(0).Sub(end.Round(0)) // without the monotonic readings
	}
	return time.Since(end)
}

// Check returns an error that names the invalid key.
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
		return fmt.Errorf("clock_drift is %g; with the additional 2ms it leaves nothing of the ttl (%s)", p.ClockDrift,
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

// DecodeQuorum decodes a client process's parameters.
func DecodeQuorum(a backends.Access) (QuorumParams, error) {
	p := QuorumDefaults(a.TTL)
	if err := backends.DecodeParams(a.Params, &p); err != nil {
		return p, fmt.Errorf("parameters of redlock: %w", err)
	}
	return p, nil
}
