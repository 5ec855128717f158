package access

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/lockquake/lockquake/backends"
)

// LockParams is what a client process is told that reaches the service through one client.
type LockParams struct {
	// Timeout bounds one command on the wire, and one connect; finding the primary by way of a Sentinel that hangs
	// takes four.
	Timeout time.Duration  `yaml:"timeout" json:"timeout_ns"`
	Retry   backends.Retry `yaml:"retry" json:"retry"`
	// Wait is how many replicas must have acknowledged a grant (WAIT after SET) before it counts; 0 asks none.
	Wait int `yaml:"wait" json:"wait"`
	// WaitTimeout is what the server is told: how long WAIT may wait for them.
	WaitTimeout time.Duration `yaml:"wait_timeout" json:"wait_timeout_ns"`
	// Master is the name under which somebody else's Sentinels know the primary.
	Master string `yaml:"-" json:"master,omitempty"`
	// Detection is how long a dead server goes unnoticed where others take its place; 0: as long as by default.
	Detection time.Duration `yaml:"-" json:"detection_ns,omitempty"`
}

// LockDefaults are the parameters of a scenario that sets none.
func LockDefaults() LockParams {
	return LockParams{
		Timeout:     time.Second,
		Retry:       backends.Retry{Delay: 10 * time.Millisecond, Jitter: 0.5},
		WaitTimeout: 500 * time.Millisecond,
	}
}

// Check names the key that is wrong, where each primary has that many replicas.
func (p LockParams) Check(replicas int) error {
	if err := backends.CheckDuration("timeout", p.Timeout, time.Millisecond); err != nil {
		return err
	}
	switch {
	case p.Wait != 0 && replicas == 0:
		return fmt.Errorf("wait is %d; there are no replicas to wait for: leave it out", p.Wait)
	case p.Wait < 0 || p.Wait > replicas:
		return fmt.Errorf("wait is %d; it must be from 0 to %d, the number of replicas of a primary", p.Wait, replicas)
	case p.Wait > 0 && p.WaitTimeout >= p.Timeout:
		return fmt.Errorf("wait_timeout is %s; it must be less than timeout (%s), or the client gives up before the server", p.WaitTimeout, p.Timeout)
	}
	// WAIT 0 would wait for ever
	if err := backends.CheckDuration("wait_timeout", p.WaitTimeout, time.Millisecond); err != nil {
		return err
	}
	return p.Retry.Check()
}

// DecodeLock decodes what a client process was told.
func DecodeLock(raw json.RawMessage) (LockParams, error) {
	p := LockDefaults()
	if err := backends.DecodeParams(raw, &p); err != nil {
		return p, fmt.Errorf("parameters of redis: %w", err)
	}
	return p, nil
}
