package batch

import (
	"github.com/spf13/pflag"

	"github.com/lockquake/lockquake/internal/cli"
	"github.com/lockquake/lockquake/internal/engine"
	"github.com/lockquake/lockquake/internal/metrics"
)

// MetricsFlag is where a verb serves metrics of its runs.
type MetricsFlag struct{ addr string }

// Add adds --metrics-addr.
func (m *MetricsFlag) Add(fl *pflag.FlagSet) {
	fl.StringVar(&m.addr, "metrics-addr", "",
		"serve metrics for Prometheus at this address while runs last, such as :9464 (loopback) or 0.0.0.0:9464")
}

// Serve begins to serve, where that was asked for. The server must be closed; nil: it was not.
func (m *MetricsFlag) Serve(tell *cli.Progress, verbose bool) (*metrics.Server, error) {
	if m.addr == "" {
		return nil, nil
	}
	s, err := metrics.Listen(m.addr)
	if err != nil {
		return nil, cli.Usagef("--metrics-addr: %v", err)
	}
	go s.Serve(cli.Logger(tell, verbose))
	tell.Say("metrics: %s", s.URL())
	return s, nil
}

// Follow has a run tell its metrics, until the function that it returns is called with the verdict.
func Follow(s *metrics.Server, o *engine.Options) (end func(verdict string)) {
	lock, show := o.Scenario.Backend.Lock, o.Progress
	for _, k := range o.Catalog.Backends {
		if l, ok := k.Lock(lock); ok && k.Name == o.Scenario.Backend.Use {
			lock = l.Name // where the scenario names none, the backend's first
		}
	}
	m := s.Run(o.Scenario.Name, o.Scenario.Backend.Use, lock)
	o.Events = m.Observe
	o.Progress = func(p engine.Progress) {
		m.Progress(p.Phase, p.Held, p.Faults, p.Standing)
		if show != nil {
			show(p)
		}
	}
	return m.End
}
