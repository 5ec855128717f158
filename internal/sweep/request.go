package sweep

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/lockquake/lockquake/internal/engine"
	"github.com/lockquake/lockquake/results/capacity"
	"github.com/lockquake/lockquake/scenarios"
)

// Request is a sweep in the words of the command line. Its errors name the flags of these names.
type Request struct {
	Backend, Lock, Scenario                          string
	Users, Locks, Hold, TTL, Nodes, RTT, Retry, Rate string
	Set, Sweep                                       []string
	// SLO is the objective, such as p99=20ms; "": none.
	SLO string
	// Attached is the backend of an attached service; "": the servers are our own.
	Attached string
}

func usagef(format string, args ...any) error {
	return engine.UsageError{Text: fmt.Sprintf(format, args...)}
}

// Asks reports whether the sweep asks if the locks carry the given rates: an objective and rates are set.
func (r Request) Asks() bool { return r.SLO != "" && r.Rate != "" }

// Points returns the points of all named locks, and the options common to all runs, by the first lock's scenario.
// options returns the options for a scenario.
func (r Request) Points(options func(scenarios.Scenario) (engine.Options, error)) (first engine.Options, all []Point,
	err error,
) {
	subjects, err := r.subjects()
	if err != nil {
		return first, nil, err
	}
	for i, one := range subjects {
		s, err := r.scenario(one)
		if err != nil {
			return first, nil, err
		}
		o, err := options(s)
		if err != nil {
			return first, nil, err
		}
		axes, err := r.axes(o)
		if err != nil {
			return first, nil, err
		}
		points, err := Points(o, axes)
		var missing engine.MissingError
		if errors.As(err, &missing) { // it has a line for each node that lacks it
			missing.Text, _, _ = strings.Cut(missing.Text, "\n")
			return first, nil, missing
		}
		if err != nil {
			return first, nil, err
		}
		if all = append(all, points...); i == 0 {
			first = o
		}
	}
	return first, all, nil
}

// subject is a lock to measure. An empty backend is the scenario's; an empty lock is the backend's default.
type subject struct{ backend, lock string }

// subjects returns the named locks.
func (r Request) subjects() (out []subject, err error) {
	backends, err := Words(cmp.Or(r.Backend, "-"))
	if err != nil {
		return nil, usagef("--backend: %v", err)
	}
	locks, err := Words(cmp.Or(r.Lock, "-"))
	switch {
	case err != nil:
		return nil, usagef("--lock: %v", err)
	case strings.Contains(r.Lock, "/"):
		out, err = r.pairs(locks)
	case len(backends) > 1 && r.Lock != "":
		err = usagef("--lock: several backends are measured with their default locks; name one --backend, or omit --lock")
	default:
		for _, b := range backends {
			for _, l := range locks {
				out = append(out, subject{strings.TrimPrefix(b, "-"), strings.TrimPrefix(l, "-")})
			}
		}
	}
	if err == nil && len(out) > 1 && r.Attached != "" {
		err = usagef("--attach: it is one service with one lock; omit the others from --backend and --lock")
	}
	return out, err
}

// pairs returns locks of several backends, each named BACKEND/LOCK.
func (r Request) pairs(locks []string) (out []subject, err error) {
	for _, l := range locks {
		backend, lock, ok := strings.Cut(l, "/")
		switch {
		case !ok || backend == "" || lock == "":
			return nil, usagef("--lock: %q is not of the form BACKEND/LOCK, as the others are", l)
		case r.Backend != "":
			return nil, usagef("--lock: %s names its backend; omit --backend", l)
		}
		out = append(out, subject{backend, lock})
	}
	return out, nil
}

// base is the scenario to sweep if none is named.
const base = `name: capacity
claim: How much load the lock takes.
backend: {use: %s, ttl: 10s}
workload: {use: acquire-release, clients: 2}
expect: {judged: ">=1"}
`

// scenario returns the scenario with all settings that are the same for every point.
func (r Request) scenario(one subject) (s scenarios.Scenario, err error) {
	var set []string
	if r.Scenario == "" {
		one.backend = cmp.Or(one.backend, r.Attached)
	}
	switch {
	case r.Scenario == "" && one.backend == "":
		return s, usagef("capacity: name what to measure: a --backend, such as redis, a --scenario, or a service to --attach")
	case r.Scenario == "":
		s, err = scenarios.Parse(fmt.Appendf(nil, base, strconv.Quote(one.backend)), "capacity.yaml")
	default:
		var found []scenarios.Scenario
		if found, err = scenarios.Load(r.Scenario); err == nil && len(found) != 1 {
			return s, usagef("--scenario: %s names %d scenarios; name one", r.Scenario, len(found))
		}
		if err == nil {
			s = found[0]
		}
		if one.backend != "" {
			set = append(set, "backend.use="+one.backend)
		}
	}
	if err != nil {
		return s, err
	}
	if one.lock != "" {
		set = append(set, "backend.lock="+one.lock)
	}
	return s.With(append(set, r.Set...))
}

// usualUsers returns the default users of a sweep: an open loop has as many as it needs to be served.
func (r Request) usualUsers() string {
	if r.Asks() {
		return "64"
	}
	return "1,2,4..64"
}

// axes reads the axes, and rejects those that the lock does not support.
func (r Request) axes(o engine.Options) ([]Axis, error) {
	plan, err := engine.Check(o)
	if err != nil {
		return nil, err
	}
	who := fmt.Sprintf("lock %s of %s", plan.Facts().Lock.Name, o.Scenario.Backend.Use)
	switch {
	case r.Retry != "" && plan.Facts().Lock.Offers.Blocking:
		return nil, usagef("--retry: %s waits in the service and does not retry", who)
	case r.RTT != "" && plan.Facts().InProcess:
		return nil, usagef("--rtt: backend %s runs within lockquake's own process and has no links to delay", o.Scenario.Backend.Use)
	case r.RTT != "" && (len(o.Scenario.Chaos) > 0 || o.Scenario.Random != nil):
		return nil, usagef("--rtt: scenario %s has its own schedule; add the delay there", o.Scenario.Name)
	case r.TTL != "" && !plan.Facts().Lock.Offers.Expires:
		return nil, usagef("--ttl: grants of %s do not expire; omit --ttl", who)
	case o.Attached != nil && r.Nodes != "":
		return nil, usagef("--attach: the number of servers is fixed; omit --nodes")
	}
	var out []Axis
	add := func(text string, read func(string) (Axis, error)) {
		if text == "" || err != nil {
			return
		}
		var a Axis
		if a, err = read(text); err != nil {
			err = usagef("--%v", err)
			return
		}
		out = append(out, a)
	}
	times := func(name, key string) func(string) (Axis, error) {
		return func(text string) (Axis, error) {
			list, err := Durations(text)
			return Keys(name, key, list, err)
		}
	}
	add(r.Nodes, func(text string) (Axis, error) {
		list, err := Numbers(text)
		return Keys("nodes", "backend.nodes", list, err)
	})
	add(r.TTL, times("ttl", "backend.ttl"))
	add(r.RTT, Trips)
	add(r.Retry, Retries)
	for _, text := range r.Sweep {
		add(text, Other)
	}
	add(r.Locks, Locks)
	add(r.Hold, times("hold", "workload.hold"))
	add(r.Rate, func(text string) (Axis, error) {
		list, err := Rates(text)
		if err == nil && r.Asks() {
			return Asked(list), nil
		}
		return Keys("rate", "workload.rate", list, err)
	})
	add(cmp.Or(r.Users, r.usualUsers()),
		func(text string) (Axis, error) { return Users(text, o.Scenario.Workload.Clients) })
	return out, err
}

// ParseObjective reads an objective such as p99=20ms or p99.9=50ms; nil for "".
func ParseObjective(text string) (*capacity.Objective, error) {
	if text == "" {
		return nil, nil
	}
	name, value, _ := strings.Cut(text, "=")
	quantiles := map[string]float64{
		"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999, "p999": 0.999,
		"p99.99": 0.9999, "p9999": 0.9999,
	}
	q, ok := quantiles[strings.TrimSpace(name)]
	if !ok {
		return nil, usagef("--slo: %q is not of the form p99=20ms; the quantiles are p50, p90, p99, p99.9 and p99.99",
			text)
	}
	d, err := time.ParseDuration(strings.TrimSpace(value))
	if err != nil || d <= 0 {
		return nil, usagef("--slo: %q is not a time, such as 20ms", value)
	}
	return &capacity.Objective{Quantile: q, Most: int64(d)}, nil
}
