package service

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/clock"
)

// maxMemory fills the memory that a server may use, so that it evicts keys or refuses writes, according to its policy.
// A lock whose key was evicted is free although its holder is entitled.
type maxMemory struct {
	// Policy is what the server does when its memory is full, one of policies.
	Policy string `yaml:"policy"`
}

// The policies of Redis (redis.io, "Key eviction").
const noEviction = "noeviction"

var policies = []string{
	"allkeys-lru", "allkeys-lfu", "allkeys-random", "volatile-lru", "volatile-lfu", "volatile-random", "volatile-ttl",
	noEviction,
}

func maxMemoryKind() chaos.Kind {
	return chaos.Kind{
		Name: "maxmemory", Place: 25,
		Doc: "Limits a server's memory to a little more than it uses, sets its eviction policy, and fills the rest " +
			"with keys of lockquake, until the heal. Receipt: the number of evicted keys, or with noeviction a " +
			"refused write.",
		Servers: true,
		Lasting: true,
		Try:     []string{"", "policy: " + noEviction},
		Began:   "its memory is full", Ended: "its memory has room again",
		New: func(decode func(any) error) (chaos.Fault, error) {
			f := maxMemory{Policy: policies[0]}
			if err := decode(&f); err != nil {
				return nil, err
			}
			if !slices.Contains(policies, f.Policy) {
				return nil, fmt.Errorf("policy of maxmemory is %q: want one of %s", f.Policy,
					strings.Join(policies, ", "))
			}
			return f, nil
		},
	}
}

// Wants returns an error for a service that cannot do it.
func (maxMemory) Wants(service chaos.Observer) error {
	_, err := evictor(service)
	return err
}

func evictor(service chaos.Observer) (chaos.Evictor, error) {
	return able[chaos.Evictor](service, chaos.Unavailable{
		What:   "an eviction of keys",
		Reason: "the service does not evict data when its memory is full",
	})
}

// Inject fills all targets concurrently.
func (f maxMemory) Inject(ctx context.Context, s chaos.Scope) (chaos.Heal, history.Receipt, error) {
	e, err := evictor(s.Service)
	if err != nil {
		return chaos.NothingToHeal, chaos.NothingDone(err), err
	}
	var hits chaos.Hits[*filled]
	receipt, err := chaos.OnEach(s.On, func(n chaos.Node) (history.Receipt, error) {
		x := &filled{Node: n}
		hits.Note(x)
		acting, done := clock.Act(ctx)
		seen, empty, err := e.FillMemory(acting, n.Name(), f.Policy)
		done()
		if x.empty = empty; err != nil {
			return history.Receipt{}, fmt.Errorf("fill %s: %w", n.Name(), err)
		}
		evidence := fmt.Sprintf("%s: %s; %d keys were evicted", n.Name(), seen.How, seen.Evicted)
		if seen.Refused != "" {
			evidence += "; a write: " + seen.Refused
		}
		status := history.NotInstalled
		if seen.Evicted > 0 && f.Policy != noEviction || seen.Refused != "" && f.Policy == noEviction {
			status = history.Installed
		}
		return chaos.Seen(status, 0, evidence), nil
	})
	return func(ctx context.Context) (history.Receipt, error) {
		return hits.Heal(ctx, func(x *filled) (history.Receipt, error) { return x.heal(ctx, s.Service) })
	}, receipt, err
}

// filled is one target.
type filled struct {
	chaos.Node
	empty func(context.Context) error
}

// heal removes our keys, reverts the settings, and checks that the server takes a write.
func (x *filled) heal(ctx context.Context, service chaos.Observer) (history.Receipt, error) {
	acting, done := clock.Act(ctx)
	failed := x.empty(acting)
	done()
	defer clock.Waits(ctx, chaos.AskTimeout)()
	answer, err := writes(ctx, service, x.Name())
	switch {
	case err != nil && failed != nil:
		return chaos.Seen(history.Indeterminate, 0, x.Name()+": "+failed.Error()), nil
	case failed != nil:
		return chaos.Seen(history.NotInstalled, 0, x.Name()+": "+failed.Error()), failed
	case err != nil || answer != "true":
		err = errors.Join(errors.New("it accepts no write"), err)
		return chaos.Seen(history.NotInstalled, 0, x.Name()+": "+err.Error()), err
	}
	return chaos.Seen(history.Installed, 0, x.Name()+": a write is accepted"), nil
}
