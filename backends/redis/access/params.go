package access

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/lockquake/lockquake/backends"
)

// LockParams is what a client process gets that reaches the service through one client.
type LockParams struct {
	// Timeout bounds one command on the wire, and one connect. Finding the primary takes up to four times as long if
	// a Sentinel hangs.
	Timeout time.Duration  `yaml:"timeout" json:"timeout_ns"`
	Retry   backends.Retry `yaml:"retry" json:"retry"`
	// Wait is how many replicas must acknowledge a grant (WAIT after SET) before it counts; 0 means none.
	Wait int `yaml:"wait" json:"wait"`
	// WaitTimeout is WAIT's own timeout, which the server applies.
	WaitTimeout time.Duration `yaml:"wait_timeout" json:"wait_timeout_ns"`
	// Master is the primary's name in the configuration of external Sentinels.
	Master string `yaml:"-" json:"master,omitempty"`
	// Detection is how long a dead server goes unnoticed if others take its place; 0: the default.
	Detection time.Duration `yaml:"-" json:"detection_ns,omitempty"`
}

// LockDefaults returns the parameters of a scenario that sets none.
func LockDefaults() LockParams {
	return LockParams{
		Timeout:     time.Second,
		Retry:       backends.Retry{Delay: 10 * time.Millisecond, Jitter: 0.5},
		WaitTimeout: 500 * time.Millisecond,
	}
}

// Check returns an error that names the invalid key. replicas is the number of replicas of each primary.
func (p LockParams) Check(replicas int) error {
	if err := backends.CheckDuration("timeout", p.Timeout, time.Millisecond); err != nil {
		return err
	}
	switch {
	case p.Wait != 0 && replicas == 0:
		return fmt.Errorf("wait is %d, but there are no replicas: omit it", p.Wait)
	case p.Wait < 0 || p.Wait > replicas:
		return fmt.Errorf("wait is %d; it must be from 0 to %d, the number of replicas of a primary", p.Wait, replicas)
	case p.Wait > 0 && p.WaitTimeout >= p.Timeout:
		return fmt.Errorf("wait_timeout is %s; it must be less than timeout (%s), or the client gives up before the server", p.WaitTimeout, p.Timeout)
	}
	// a timeout of 0 would make WAIT wait for ever
	if err := backends.CheckDuration("wait_timeout", p.WaitTimeout, time.Millisecond); err != nil {
		return err
	}
	return p.Retry.Check()
}

// DecodeLock decodes a client process's parameters.
func DecodeLock(raw json.RawMessage) (LockParams, error) {
	p := LockDefaults()
	if err := backends.DecodeParams(raw, &p); err != nil {
		return p, fmt.Errorf("parameters of redis: %w", err)
	}
	return p, nil
}
