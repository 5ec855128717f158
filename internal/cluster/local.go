package cluster

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"slices"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/internal/agent"
)

// LocalOptions says how nodes run as child processes.
type LocalOptions struct {
	// Self is lockquake's own binary; "" means LOCKQUAKE_BIN, else the running program.
	Self string
	// Loopback puts all nodes on 127.0.0.1, each with ports of its own, even where network namespaces could be made.
	Loopback bool
	Log      *slog.Logger // may be nil
}

// local is the provider of child processes.
type local struct {
	options LocalOptions
	log     *slog.Logger
}

// NewLocal returns the provider of child processes of this machine.
func NewLocal(o LocalOptions) (Provider, error) {
	l := &local{options: o, log: o.Log}
	if l.log == nil {
		l.log = slog.New(slog.DiscardHandler)
	}
	return l, nil
}

// Name returns "local".
func (l *local) Name() string { return "local" }

// Offers tells what can be done to a child process.
func (l *local) Offers(c chaos.Capability, r Role) error {
	if c == CanLimit {
		_, err := probeLimits()
		return err
	}
	if err := agent.Supported(); err != nil && c != chaos.CanStart {
		return chaos.Unavailable{What: string(c), Reason: err.Error()}
	}
	if c == chaos.CanFreeze {
		if err := agent.FreezerSupported(); err != nil {
			return chaos.Unavailable{What: string(c), Reason: err.Error() + "; the agent makes control groups, for which it needs root and a writable hierarchy: use --provider docker, or pause"}
		}
	}
	if c == chaos.CanFilter || c == chaos.CanHold || slices.Contains(shapings, c) {
		if err := l.ownNetworks(); err != nil {
			return chaos.Unavailable{What: string(c), Reason: "all nodes share the loopback address: " + err.Error()}
		}
		if err := agent.FilterSupported(); err != nil && !slices.Contains(shapings, c) {
			return chaos.Unavailable{What: string(c), Reason: err.Error()}
		}
	}
	if slices.Contains(shapings, c) {
		return offersShaping(c, agent.TryEngines())
	}
	if c == chaos.CanClock {
		if os.Geteuid() != 0 {
			return chaos.Unavailable{What: string(c), Reason: "the agent writes into the memory of processes, for which it needs root; use --provider docker"}
		}
		return noClock(agent.CanClock())
	}
	if c == chaos.CanCutPower && r == Server {
		return disksHere()
	}
	if c == chaos.CanHoldSyncs && os.Geteuid() != 0 {
		return chaos.Unavailable{What: string(c), Reason: "the agent traces processes, for which it needs root; use --provider docker"}
	}
	return offers(c, r)
}

// ownNetworks tells why nodes would not get network namespaces of their own.
func (l *local) ownNetworks() error {
	if l.options.Loopback {
		return errors.New("asked for")
	}
	return probeNamespaces()
}

// Open finds the programs and makes the network; nothing is started but, where asked for, the agent.
func (l *local) Open(ctx context.Context, r Request) (*Cluster, error) {
	r, err := r.checked()
	if err != nil {
		return nil, err
	}
	for key := range r.Images {
		return nil, chaos.Unavailable{What: "--image " + key, Reason: "the local provider runs programs from PATH; use --provider docker"}
	}
	run := &localRun{local: l, request: r, owner: self(r.Run, r.Keep), thread: newThread()}
	c := &Cluster{close: run.close, Describe: map[string]string{"provider": "local"}}
	if r.Reuse {
		c.keeper = run
	}
	if err := run.open(ctx, c); err != nil {
		return nil, errors.Join(err, c.Close(ctx))
	}
	return c, nil
}
