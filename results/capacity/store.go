package capacity

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/results/figure"
)

// MostPoints bounds the points of a sweep: measured, left out, and found by its searches, SearchMost per curve.
const MostPoints = 5_000

// Bounds of a file: no real sweep is larger.
const (
	maxSamples = 1_000
	maxUsers   = 1_000_000
	maxName    = 500
	maxFigure  = 1e15 // of any figure
)

// Write writes a sweep atomically.
func Write(path string, s Sweep) error {
	if err := s.check(); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return results.WriteJSON(path, s)
}

// Read reads a sweep. Invalid content is an error of one line that wraps history.ErrCorrupt.
func Read(path string) (Sweep, error) {
	var s Sweep
	b, err := history.ReadFile(path, history.MostText)
	if err != nil {
		return s, err
	}
	if err := decode(b, &s); err != nil {
		return Sweep{}, fmt.Errorf("%w: %s: %v", history.ErrCorrupt, path, err)
	}
	return s, nil
}

func decode(b []byte, s *Sweep) error {
	var head struct {
		Schema string `json:"schema"`
	}
	if err := json.Unmarshal(b, &head); err != nil {
		return err
	}
	if head.Schema != Schema { // first of all: another version has other fields
		return fmt.Errorf("schema is %q; this program reads %q", shorten(head.Schema), Schema)
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(s); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return errors.New("there is data after the sweep")
	}
	return s.check()
}

// check returns an error for values that no sweep can have.
func (s Sweep) check() error {
	if s.Schema != Schema {
		return fmt.Errorf("schema is %q; this program knows %q", shorten(s.Schema), Schema)
	}
	if n := len(s.Points) + len(s.Left); n > MostPoints {
		return fmt.Errorf("%d points: a sweep has at most %d", n, MostPoints)
	}
	if s.Repeat < 0 || s.Repeat > maxSamples || s.Warm < 0 || s.Measured < 0 {
		return fmt.Errorf("repeat %d, warm_ns %d and measured_ns %d: none may be negative, and repeat is at most %d",
			s.Repeat, s.Warm, s.Measured, maxSamples)
	}
	if o := s.Objective; o != nil && (!(o.Quantile > 0 && o.Quantile < 1) || o.Most <= 0) {
		return fmt.Errorf("objective: quantile %g within %d ns: the quantile must be between 0 and 1, the time above 0",
			o.Quantile, o.Most)
	}
	for i, p := range s.Points {
		if err := p.check(); err != nil {
			return fmt.Errorf("point %d: %w", i, err)
		}
	}
	for i, l := range s.Left {
		if err := l.check(); err != nil {
			return fmt.Errorf("left %d: %w", i, err)
		}
	}
	return nil
}

func (s Setting) check() error {
	for name, n := range map[string]int{"users": s.Users, "locks": s.Locks} {
		if n < 1 || n > maxUsers {
			return fmt.Errorf("%d %s: must be 1 to %d", n, name, maxUsers)
		}
	}
	for name, n := range map[string]int64{
		"nodes": int64(s.Nodes), "hold_ns": s.Hold, "ttl_ns": s.TTL,
		"rtt_ns": s.RTT,
	} {
		if n < 0 {
			return fmt.Errorf("%s is %d: it must not be negative", name, n)
		}
	}
	if !plausible(s.Rate) {
		return fmt.Errorf("rate is %g: it must not be negative", s.Rate)
	}
	for _, name := range []string{s.Backend, s.Lock, s.Retry, s.Set} {
		if len(name) > maxName {
			return fmt.Errorf("the name %q... is too long", shorten(name))
		}
	}
	return nil
}

func (p Point) check() error {
	if err := p.Setting.check(); err != nil {
		return err
	}
	if len(p.Policy) > maxName {
		return fmt.Errorf("retry_policy %q... is too long", shorten(p.Policy))
	}
	if len(p.Samples) > maxSamples {
		return fmt.Errorf("%d samples: a point has at most %d", len(p.Samples), maxSamples)
	}
	for i, s := range p.Samples {
		for name, f := range s.figures() {
			if !plausible(f) {
				return fmt.Errorf("sample %d: %s is %g: it must not be negative", i, shorten(name), f)
			}
		}
	}
	return nil
}

// figures returns all numbers of a sample by name.
func (s Sample) figures() map[string]float64 {
	all := map[string]float64{
		"cycles_per_s": s.Cycles, "cycle_ms": s.Cycle, "hold_ms": s.HoldMean, "in_service": s.InService,
		"offered_per_s": s.Offered, "due_per_s": s.Due,
		"unserved": float64(s.Unserved), "late_p99_ms": s.Late, "cores": float64(s.Cores), "order": float64(s.Order),
		"late_starts": float64(s.LateStarts), "acquires": float64(s.Acquires),
		"server_cores": s.ServerCores,
	}
	for name, f := range map[string]*float64{
		"handoff_ms": s.Handoff, "handoff_mean_ms": s.HandoffMean, "requests_per_grant": s.Requests, "rtt_ms": s.RTT,
		"machine_cores": s.Machine,
		"writes_per_s":  s.Writes, "lost_share": s.Lost, "busiest_server_cores": s.Busiest, "fsync_ms": s.Fsync,
		"packets_per_s": s.Packets, "outside": s.Outside,
	} {
		if f != nil {
			all[name] = *f
		}
	}
	for name, f := range s.Latency {
		all["latency_ms "+name] = f
	}
	for name, n := range s.Counts {
		all["counts "+name] = float64(n)
	}
	for name, f := range s.CPU {
		all["cpu "+name] = f
	}
	return all
}

// plausible reports whether a number can be a figure of a sample; NaN cannot.
func plausible(f float64) bool { return f >= 0 && f <= maxFigure }

func shorten(s string) string {
	if len(s) > 60 {
		return s[:60] + "..."
	}
	return s
}

// Merge merges sweeps of one machine, so that one report compares them. Samples of equal settings go into one point.
func Merge(sweeps ...Sweep) (Sweep, error) {
	if len(sweeps) == 0 {
		return Sweep{}, errors.New("there is no sweep to merge")
	}
	out := sweeps[0]
	out.Host, out.Service = maps.Clone(out.Host), maps.Clone(out.Service)
	out.Points, out.Left = slices.Clone(out.Points), slices.Clone(out.Left)
	for i, s := range sweeps[1:] {
		for _, name := range results.SameMachine {
			if s.Host[name] != out.Host[name] {
				return Sweep{}, fmt.Errorf("sweeps 1 and %d are from different machines: %s is %q and %q", i+2, name,
					out.Host[name], s.Host[name])
			}
		}
		if (s.Objective == nil) != (out.Objective == nil) || s.Objective != nil && *s.Objective != *out.Objective {
			return Sweep{}, fmt.Errorf("sweeps 1 and %d have different objectives", i+2)
		}
		if s.Provider != out.Provider || s.Measured != out.Measured {
			return Sweep{}, fmt.Errorf("sweeps 1 and %d differ: providers %s and %s, measured %s and %s", i+2,
				out.Provider, s.Provider, figure.Duration(out.Measured), figure.Duration(s.Measured))
		}
		for j, t := range sweeps[:i+1] {
			if t.ScenarioText != s.ScenarioText &&
				slices.ContainsFunc(t.Points, func(p Point) bool { return s.has(p.Setting) }) {
				return Sweep{}, fmt.Errorf("sweeps %d and %d have points of the same name but different scenarios (--set, --scenario)", j+1, i+2)
			}
		}
		out.Scenario, out.Version = both(out.Scenario, s.Scenario), both(out.Version, s.Version)
		out.Command += "\n" + s.Command
		if out.Service == nil {
			out.Service = map[string]string{}
		}
		for name, v := range s.Service {
			out.Service[name] = both(out.Service[name], v)
		}
		out.Interrupted = out.Interrupted || s.Interrupted
		out.Repeat = max(out.Repeat, s.Repeat)
		out.Points = gather(append(out.Points, s.Points...))
		out.Left = append(out.Left, s.Left...)
	}
	out.Left = slices.DeleteFunc(out.Left, func(l Left) bool {
		return slices.ContainsFunc(out.Points, func(p Point) bool {
			return p.Setting == l.Setting &&
				len(p.Samples) > 0
		})
	})
	return out, nil
}

// has reports whether a sweep measured a point.
func (s Sweep) has(of Setting) bool {
	return slices.ContainsFunc(s.Points, func(p Point) bool { return p.Setting == of })
}

// both joins two values; equal values appear once.
func both(a, b string) string {
	switch {
	case a == "":
		return b
	case b == "" || slices.Contains(strings.Split(a, " and "), b):
		return a
	}
	return a + " and " + b
}
