package scenarios

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/lockquake/lockquake/internal/node"
)

// Defaults of a scenario.
const (
	DefaultTTL     = 10 * time.Second
	DefaultTimeout = 10 * time.Second // of one operation
	DefaultWithin  = 10 * time.Second // deadline of a step
	DefaultFor     = 30 * time.Second // of a workload
	DefaultSettle  = time.Second
	DefaultGuard   = "none"
	DefaultLock    = "lock-0" // of a step
)

// defaultBackend is a backend section that sets nothing.
var defaultBackend = Backend{TTL: DefaultTTL, Permits: 1}

// The rules of hosts.
const (
	HostsSpread = "spread"
	HostsApart  = "servers-apart-from-clients"
)

var (
	hostRules = []string{HostsSpread, HostsApart}
	labelForm = regexp.MustCompile(`^[^=\s]+=\S+$`)
	rootKeys  = []string{
		"name", "claim", "source", "about", "backend", "workload", "chaos", "steps", "run", "hosts",
		"expect", "properties", "twins",
	}
	nameForm = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)
	guards   = []string{
		"none", "fence", "fence-writes", "fence-version", "cas-version", "cas-owner",
		"check-then-write", "sequencer", "ask-then-write", "condition", "decr", "unique", "lock-key", "if-match",
		"majority", "one", "all",
	}
	looks     = []string{"signal", "validity"}
	maxIndex  = 1 << 16 // clients, and users of one client: the history numbers them with 16 bits
	maxLength = 64      // of a name
)

// Parse reads one scenario strictly: an unknown key, a missing value, or one that does not fit, is an *Error with
// file, line and caret. Twins in the text are checked too; Load returns them. Params.Decode reads the parameters of
// the backend, the workload and the faults.
func Parse(data []byte, file string) (Scenario, error) {
	family, err := parseFamily(data, file)
	if err != nil {
		return Scenario{}, err
	}
	return family[0], nil
}

// parseFamily reads a scenario and its twins.
func parseFamily(data []byte, file string) ([]Scenario, error) {
	src := newSource(file, data)
	root, err := readRoot(src, data)
	if err != nil {
		return nil, err
	}
	s, err := build(src, root)
	if err != nil {
		return nil, err
	}
	variants, err := twins(s)
	if err != nil {
		return nil, err
	}
	if text, ok := withoutTwins(data, root); ok {
		s.Text = text
	}
	return append([]Scenario{s}, variants...), nil
}

// document is a scenario as YAML. The readers of its parts look up entries and place errors with it.
type document struct {
	src  *source
	root *ast.MappingNode
}

// reader reads the sections that have no reader of their own.
type reader struct{ document }

// build returns the scenario that root describes.
func build(src *source, root *ast.MappingNode) (Scenario, error) {
	d := document{src: src, root: root}
	r := reader{d}
	s := Scenario{File: src.file, src: src, root: root}
	for _, v := range root.Values {
		if !slices.Contains(rootKeys, keyOf(v)) {
			return s, unknownKey(src, v, "", rootKeys)
		}
	}
	for _, read := range []func(*Scenario) error{
		r.head, r.backend, r.workload, r.run, r.hosts, chaosReader{d}.chaos, stepsReader{d}.steps,
		r.expect, r.properties, r.whole,
	} {
		if err := read(&s); err != nil {
			return s, err
		}
	}
	s.Text = emit(root)
	return s, nil
}

// hostKeys are the keys of `hosts:`. Servers and Clients are labels.
type hostKeys struct{ Rule, Servers, Clients string }

// hosts reads the placement of the nodes over several machines.
func (r reader) hosts(s *Scenario) error {
	m, err := r.section("hosts")
	if m == nil || err != nil {
		return err
	}
	h := hostKeys{Rule: HostsSpread}
	if err := decode(r.src, m, "hosts", &h, nil); err != nil {
		return err
	}
	if !slices.Contains(hostRules, h.Rule) {
		return r.errorf("hosts.rule", "%q is not known; %s", h.Rule, instead(h.Rule, hostRules))
	}
	for key, label := range map[string]string{"servers": h.Servers, "clients": h.Clients} {
		if label != "" && !labelForm.MatchString(label) {
			return r.errorf("hosts."+key, "%q is not a label of hosts; write it as key=value, such as disk=nvme", label)
		}
	}
	s.Hosts = node.Hosts{Apart: h.Rule == HostsApart, Servers: h.Servers, Clients: h.Clients}
	return nil
}

// section returns the map under a key of the root, or nil without that key.
func (d document) section(key string) (*ast.MappingNode, error) {
	v := entry(d.root, key)
	if v == nil {
		return nil, nil
	}
	return d.mapping(v.Value, key, v)
}

func (d document) mapping(n ast.Node, path string, pair *ast.MappingValueNode) (*ast.MappingNode, error) {
	if n == nil || n.Type() == ast.NullType {
		return nil, d.src.at(tokenOf(pair.Key), path, "has no value")
	}
	m, ok := n.(*ast.MappingNode)
	if !ok {
		return nil, d.src.at(tokenOf(n), path, "%s is not a map of keys", shown(n))
	}
	return m, nil
}

// list returns the entries of the list under a key of the root.
func (d document) list(key string) ([]*ast.MappingNode, error) {
	v := entry(d.root, key)
	if v == nil {
		return nil, nil
	}
	return d.maps(v, key)
}

// maps returns the entries of the list that is the value of a pair.
func (d document) maps(v *ast.MappingValueNode, key string) ([]*ast.MappingNode, error) {
	if v.Value == nil || v.Value.Type() == ast.NullType {
		return nil, d.src.at(tokenOf(v.Key), key, "has no value")
	}
	seq, ok := v.Value.(*ast.SequenceNode)
	if !ok {
		return nil, d.src.at(tokenOf(v.Value), key, "%s is not a list", shown(v.Value))
	}
	var out []*ast.MappingNode
	for i, n := range seq.Values {
		m, err := d.mapping(n, item(key, i), v)
		if err != nil {
			return nil, err
		}
		out = append(out, m)
	}
	return out, nil
}

// own fills the struct that into points to with the keys it has. It returns the other keys, which belong to the
// instance.
func (d document) own(m *ast.MappingNode, path string, into any) (Params, error) {
	keys := keysOf(fieldsOf(reflect.TypeOf(into)))
	var known, rest []*ast.MappingValueNode
	for _, v := range m.Values {
		if slices.Contains(keys, keyOf(v)) {
			known = append(known, v)
		} else {
			rest = append(rest, v)
		}
	}
	if err := decode(d.src, mapping(m, known), path, into, nil); err != nil {
		return Params{}, err
	}
	if len(rest) == 0 {
		return Params{}, nil
	}
	return Params{node: mapping(m, rest), src: d.src, path: path, common: keys}, nil
}

// errorf returns an error about the value under path.
func (d document) errorf(path, format string, args ...any) error {
	return errorAt(d.src, d.root, path, format, args...)
}

func (d document) missing(path, what string) error {
	return d.errorf(path, "is missing: %s", what)
}

func (r reader) head(s *Scenario) error {
	var h struct {
		Name, Claim, Source string
		About               []string
	}
	if _, err := r.own(r.root, "", &h); err != nil {
		return err
	}
	if h.Name == "" {
		return r.missing("name", "every scenario has one, such as etcd-holder-pause")
	}
	if !nameForm.MatchString(h.Name) || len(h.Name) > maxLength {
		return r.errorf("name", "%q is not a name: at most %d lower-case letters, digits and single dashes", h.Name,
			maxLength)
	}
	if strings.TrimSpace(h.Claim) == "" {
		return r.missing("claim", "one or two sentences that say what the run shows")
	}
	for i, name := range h.About {
		if !IsEvent(name) && !countForm.MatchString(name) {
			return r.errorf(fmt.Sprintf("about.%d", i), "%q is not a count, measure or event, such as lost_updates or %q",
				name, "renew ok")
		}
	}
	s.Name, s.Claim, s.Source, s.About = h.Name, h.Claim, h.Source, h.About
	return nil
}

func (r reader) backend(s *Scenario) error {
	m, err := r.section("backend")
	if err != nil {
		return err
	}
	if m == nil {
		return r.missing("backend", "the backend, such as {use: etcd, lock: mutex, ttl: 2s}")
	}
	b := defaultBackend
	if b.Params, err = r.own(without(m, "client"), "backend", &b); err != nil {
		return err
	}
	b.Params.common = append(b.Params.common, "client")
	if b.Client, err = clientReader(r).client(m, "backend"); err != nil {
		return err
	}
	switch {
	case b.Use == "":
		return r.missing("backend.use", "the name of a backend, such as etcd")
	case b.Nodes < 0 || b.Nodes == 0 && entry(m, "nodes") != nil:
		return r.errorf("backend.nodes", "%d is too few; at least 1", b.Nodes)
	case b.Permits < 1:
		return r.errorf("backend.permits", "%d is too few; at least 1 (mutual exclusion)", b.Permits)
	case b.TTL == 0:
		return r.errorf("backend.ttl", "a lock needs some time; write a time above 0s")
	}
	s.Backend = b
	return r.limits(m, "backend", b.Limits)
}

func (r reader) run(s *Scenario) error {
	run := Run{Settle: DefaultSettle}
	if s.Workload.Use != "" {
		run.For = DefaultFor
	}
	m, err := r.section("run")
	if err != nil {
		return err
	}
	if m != nil {
		if err := decode(r.src, m, "run", &run, nil); err != nil {
			return err
		}
		if entry(m, "for") != nil && run.For == 0 {
			return r.errorf("run.for", "a run needs some time; write a time above 0s")
		}
	}
	s.Run = run
	return nil
}

// whole runs the checks that span several sections.
func (r reader) whole(s *Scenario) error {
	switch {
	case s.Workload.Use == "" && len(s.Steps) == 0:
		return r.errorf("workload", "there is nothing to do: name a workload (use: counter) or write steps")
	case s.Workload.Use == "" && len(s.Workload.Params.Keys()) > 0:
		return r.missing("workload.use", "the name of a workload, such as counter, to which these keys belong: "+
			strings.Join(s.Workload.Params.Keys(), ", "))
	case s.Workload.Use == "" && (len(s.Chaos) > 0 || s.Random != nil):
		return r.errorf("chaos", "a schedule needs a workload; without one, write inject steps")
	case s.Run.Warmup > 0 && s.Run.Warmup >= s.Run.For:
		return r.errorf("run.warmup", "a warm-up of %v leaves nothing of %v to measure; write a shorter one, or a longer run.for", s.Run.Warmup, s.Run.For)
	case s.Workload.Use == "" && s.Run.For != 0:
		return r.errorf("run.for", "without a workload a run ends after the last step; omit it")
	}
	return nil
}
