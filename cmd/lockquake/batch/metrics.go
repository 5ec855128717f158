package batch

import (
	"github.com/spf13/pflag"

	"github.com/lockquake/lockquake/internal/cli"
	"github.com/lockquake/lockquake/internal/engine"
	"github.com/lockquake/lockquake/internal/metrics"
)

// MetricsFlag is the address at which a verb serves metrics of its runs.
type MetricsFlag struct{ addr string }

// Add adds --metrics-addr.
func (m *MetricsFlag) Add(fl *pflag.FlagSet) {
	fl.StringVar(&m.addr, "metrics-addr", "",
		"serve metrics for Prometheus at this address while runs last, such as :9464 (loopback) or 0.0.0.0:9464")
}

// Serve starts the metrics server, which the caller must close. It returns nil if no address was given.
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

// Follow has a run report to the metrics server. Call end with the verdict.
func Follow(s *metrics.Server, o *engine.Options) (end func(verdict string)) {
	lock, show := o.Scenario.Backend.Lock, o.Progress
	for _, k := range o.Catalog.Backends {
		if l, ok := k.Lock(lock); ok && k.Name == o.Scenario.Backend.Use {
			lock = l.Name // if the scenario names none: the backend's first lock
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
