// Package metrics publishes the state of runs in progress in the format of Prometheus. Nothing is judged from it:
// events that a client has not sent yet are missing, and the hold of a client that died is not counted.
package metrics

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/net/netutil"

	"github.com/lockquake/lockquake/history"
)

// Any host that can connect may scrape, so connections are bounded in number and time: they would otherwise use up
// the process's files. A connection above the bound is served when another one ends.
const (
	mostConnections = 32
	patience        = 5 * time.Second
)

// Server serves the metrics of the runs of one command over HTTP.
type Server struct {
	listener   net.Listener
	http       http.Server
	operations *prometheus.CounterVec
	acquire    *prometheus.HistogramVec
	hold       *prometheus.HistogramVec
	held       *prometheus.GaugeVec
	injected   *prometheus.GaugeVec
	standing   *prometheus.GaugeVec
	phase      *prometheus.GaugeVec
	verdicts   *prometheus.CounterVec
}

// labels are the labels of every metric.
var labels = []string{"scenario", "backend", "lock"}

// bounds are those of the histograms, in s: from 50 µs to 105 s, each twice the one before.
var bounds = prometheus.ExponentialBuckets(50e-6, 2, 22)

// Listen begins to serve at addr, host and port. Without a host it serves on loopback only.
func Listen(addr string) (*Server, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, fmt.Errorf("%q is not an address: want HOST:PORT, such as 127.0.0.1:9464, or :9464 for loopback only",
			addr)
	}
	if host == "" {
		host = "127.0.0.1"
	}
	l, err := net.Listen("tcp", net.JoinHostPort(host, port))
	if err != nil {
		return nil, err
	}
	gauge := func(name, help string, more ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help},
			append(labels[:len(labels):len(labels)], more...))
	}
	counter := func(name, help string, more ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help},
			append(labels[:len(labels):len(labels)], more...))
	}
	histogram := func(name, help string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: bounds}, labels)
	}
	s := &Server{
		listener: l,
		operations: counter("lockquake_operations_total",
			"Completed operations of the users, by outcome: ok, fail (certainly not done), info (unknown).",
			"operation", "outcome"),
		acquire: histogram("lockquake_acquire_seconds",
			"Time from the acquire to its grant; in an open loop from the intended start."),
		hold:     histogram("lockquake_hold_seconds", "Time from a grant to the start of its release."),
		held:     gauge("lockquake_grants_in_hand", "Grants that users have in hand."),
		injected: gauge("lockquake_faults_injected", "Injections made or tried in the current run."),
		standing: gauge("lockquake_faults_standing", "Injections that are not yet healed."),
		phase: gauge("lockquake_run_phase", "1 for the phase that the run is in: up, load, heal, settle or down.",
			"phase"),
		verdicts: counter("lockquake_runs_total", "Runs that were judged, by verdict: pass, fail or unknown.",
			"verdict"),
	}
	r := prometheus.NewRegistry()
	r.MustRegister(s.operations, s.acquire, s.hold, s.held, s.injected, s.standing, s.phase, s.verdicts,
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), collectors.NewGoCollector())
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(r, promhttp.HandlerOpts{}))
	s.http = http.Server{Handler: mux, ReadTimeout: patience, WriteTimeout: patience, IdleTimeout: patience}
	return s, nil
}

// Serve answers until Close.
func (s *Server) Serve(log *slog.Logger) {
	if err := s.http.Serve(netutil.LimitListener(s.listener, mostConnections)); !errors.Is(err, http.ErrServerClosed) {
		log.Warn("metrics are no longer served", "error", err)
	}
}

// URL returns the address of the metrics.
func (s *Server) URL() string { return "http://" + s.listener.Addr().String() + "/metrics" }

// Close stops the server; a scrape under way has a second.
func (s *Server) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = s.http.Shutdown(ctx)
	s.listener.Close() // of a server that never served
}

// Run holds the metrics of one run.
type Run struct {
	server     *Server
	values     []string // of labels
	operations map[outcome]prometheus.Counter
	acquire    prometheus.Observer
	hold       prometheus.Observer

	mu      sync.Mutex
	asked   map[history.User]int64 // ns: when the user asked, or was due to
	granted map[grant]int64        // ns
	phase   string
}

type outcome struct {
	kind  history.Kind
	phase history.Phase
}

type grant struct {
	user history.User
	id   uint32
}

// Run begins the metrics of a run.
func (s *Server) Run(scenario, backend, lock string) *Run {
	v := []string{scenario, backend, lock}
	r := &Run{
		server: s, values: v, operations: map[outcome]prometheus.Counter{}, acquire: s.acquire.WithLabelValues(v...),
		hold:  s.hold.WithLabelValues(v...),
		asked: map[history.User]int64{}, granted: map[grant]int64{},
	}
	for kind := history.Acquire; kind <= history.Write; kind++ {
		for _, phase := range []history.Phase{history.Ok, history.Fail, history.Info} {
			r.operations[outcome{kind, phase}] = s.operations.WithLabelValues(append(v[:3:3], kind.String(),
				phase.String())...)
		}
	}
	return r
}

// Observe takes events of one process, in their order. Several processes may call it at once.
func (r *Run) Observe(batch []history.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range batch {
		e := &batch[i]
		if c := r.operations[outcome{e.Kind, e.Phase}]; c != nil {
			c.Inc()
		}
		switch {
		case e.Kind == history.Acquire && e.Phase == history.Invoke:
			r.asked[e.User] = e.Time
			if e.Value > 0 {
				r.asked[e.User] = e.Value
			}
		case e.Kind == history.Acquire && e.Phase == history.Ok:
			r.acquire.Observe(seconds(e.Time - r.asked[e.User]))
			r.granted[grant{e.User, e.Op}] = e.Time
		case e.Kind == history.Release && e.Phase == history.Invoke:
			k := grant{e.User, e.Grant}
			if at, ok := r.granted[k]; ok {
				r.hold.Observe(seconds(e.Time - at))
				delete(r.granted, k)
			}
		}
	}
}

// Progress sets the state of the run: its phase, the grants held, and the injections made and still active.
func (r *Run) Progress(phase string, held, injected, standing int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.server
	s.held.WithLabelValues(r.values...).Set(float64(held))
	s.injected.WithLabelValues(r.values...).Set(float64(injected))
	s.standing.WithLabelValues(r.values...).Set(float64(standing))
	if phase != r.phase {
		r.leave()
		r.phase = phase
		s.phase.WithLabelValues(append(r.values[:3:3], phase)...).Set(1)
	}
}

// End sets the verdict of the run; "" if it was not judged.
func (r *Run) End(verdict string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leave()
	r.server.held.WithLabelValues(r.values...).Set(0)
	r.server.standing.WithLabelValues(r.values...).Set(0)
	if verdict != "" {
		r.server.verdicts.WithLabelValues(append(r.values[:3:3], verdict)...).Inc()
	}
}

// leave ends the phase that the run was in. The caller holds the mutex.
func (r *Run) leave() {
	if r.phase != "" {
		r.server.phase.DeleteLabelValues(append(r.values[:3:3], r.phase)...)
	}
	r.phase = ""
}

func seconds(ns int64) float64 { return float64(ns) / 1e9 }
