// Package external is a lock service that lockquake does not know: its locks exist only in the client program. The
// scenario says what they promise, and how to start the servers or where they are.
package external

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/backends/listed"
	"github.com/lockquake/lockquake/backends/topology"
	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/internal/node"
)

// Name is the backend's name in scenarios.
const Name = "external"

// Backend returns that service. Its parameters say what its lock promises.
func Backend() listed.Backend {
	return listed.Backend{
		Backend: backends.Backend{
			Name:    Name,
			Doc:     "A service that lockquake does not know, with your own program as its client.",
			Servers: backends.Servers{Unasked: true, CountsConnections: true},
			Locks: []backends.Lock{{
				Name: "own", Doc: "Defined by the client program.",
				Dial: func(context.Context, backends.Access) (backends.Connection, error) {
					return nil, fmt.Errorf("lockquake's own client has no lock of backend %s: name a program in backend.client", Name)
				},
			}},
		},
		Maker: topology.Maker{New: newTopology},
	}
}

// Params is a scenario's description of the service.
type Params struct {
	Token    string        `yaml:"token"`    // none, service or home-made: where fencing tokens come from
	Expires  bool          `yaml:"expires"`  // a dead holder's grant ends by itself
	Recovery time.Duration `yaml:"recovery"` // within what time the service must grant again after a holder's death
	Hung     time.Duration `yaml:"hung"`     // the same after the last call of a user that hangs; 0: there is no bound
	MinTTL   time.Duration `yaml:"min_ttl"`  // the shortest TTL that the service honours
	Start    *Start        `yaml:"start"`    // how to start the run's own servers
	// Endpoints are host:port of external servers.
	Endpoints []string `yaml:"endpoints"`
}

// Start says how servers are started.
type Start struct {
	Image   string            `yaml:"image"`   // of their containers
	Command []string          `yaml:"command"` // with placeholders, see command
	Env     map[string]string `yaml:"env"`
	Ports   map[string]int    `yaml:"ports"` // by name; clients find the addresses under these names
	Ready   Ready             `yaml:"ready"`
	// Stop is the signal that stops a server gracefully; "" is TERM.
	Stop string `yaml:"stop_signal"`
}

// Ready says how to find out whether a server serves: it accepts connections at a port, and its answer to Send
// contains Expect.
type Ready struct {
	Port   string `yaml:"port"` // "": the first by name
	Send   string `yaml:"send"`
	Expect string `yaml:"expect"`
}

// clientPort is the name of an endpoint's port.
const clientPort = "client"

type setup struct {
	common topology.Common
	params Params
	ports  []node.Port
}

var (
	_ listed.Declaring = setup{}
	_ topology.Outside = setup{}
)

func newTopology(c topology.Common, decode func(into any) error) (topology.Topology, error) {
	p := Params{Token: string(backends.TokenNone), Expires: true}
	if err := decode(&p); err != nil {
		return nil, err
	}
	s := setup{common: c, params: p, ports: []node.Port{{Name: clientPort}}}
	if s.common.Nodes == 0 {
		s.common.Nodes = 1
	}
	if p.Start != nil {
		s.ports = nil
		for _, name := range slices.Sorted(maps.Keys(p.Start.Ports)) {
			s.ports = append(s.ports, node.Port{Name: name, Number: p.Start.Ports[name]})
		}
	}
	if err := s.check(); err != nil {
		return nil, fmt.Errorf("backend external: %w", err)
	}
	return s, nil
}

func (s setup) check() error {
	p := s.params
	sources := []string{string(backends.TokenNone), string(backends.TokenService), string(backends.TokenHomeMade)}
	switch {
	case !slices.Contains(sources, p.Token):
		return fmt.Errorf("token is %q; it must be %s", p.Token, strings.Join(sources, ", "))
	case p.Recovery < 0 || p.MinTTL < 0 || p.Hung < 0:
		return fmt.Errorf("recovery is %v, hung %v and min_ttl %v; want durations of 0 or more", p.Recovery, p.Hung,
			p.MinTTL)
	case p.Start != nil && len(p.Endpoints) > 0:
		return fmt.Errorf("give start or endpoints, not both: either the run starts the servers, or they are already running")
	case p.Start == nil && s.common.Nodes > 1:
		return fmt.Errorf("nodes is %d; without start the run has no nodes", s.common.Nodes)
	case p.Start == nil:
		return nil
	case len(p.Start.Command) == 0:
		return fmt.Errorf("start.command is missing; write the server's program and its arguments, such as [my-server, --listen, '{client}']")
	case len(s.ports) == 0:
		return fmt.Errorf("start.ports is missing; write the ports that clients use by name, such as {client: 7000}")
	case p.Start.Ready.Port != "" && p.Start.Ports[p.Start.Ready.Port] == 0:
		return fmt.Errorf("start.ready.port is %q, which is not among start.ports", p.Start.Ready.Port)
	}
	for _, port := range s.ports {
		if port.Number < 1 || port.Number > 65535 {
			return fmt.Errorf("start.ports.%s is %d; want 1 to 65535", port.Name, port.Number)
		}
	}
	return nil
}

// Declare sets what the scenario says about the lock. The program itself refuses at its start what it cannot do, such
// as renewals.
func (s setup) Declare(l backends.Lock) backends.Lock {
	p := s.params
	l.Offers = backends.Offers{
		Renewal: "call", LossSignal: true, Token: backends.TokenSource(p.Token), Reentrant: "no",
		Expires: p.Expires,
	}
	l.MinTTL = p.MinTTL
	if p.Hung > 0 {
		l.Hung = backends.RecoversIn(func(time.Duration) time.Duration { return p.Hung })
	}
	if p.Expires {
		l.Recovery = backends.RecoversIn(func(ttl time.Duration) time.Duration {
			if p.Recovery > 0 {
				return p.Recovery
			}
			return ttl + 3*time.Second
		})
	}
	return l
}

// Outside returns the endpoints.
func (s setup) Outside() []string { return s.params.Endpoints }

func name(i int) string { return "service-" + strconv.Itoa(i+1) }

// Specs returns the server nodes.
func (s setup) Specs() []node.Spec {
	var out []node.Spec
	for i := range s.params.Endpoints {
		out = append(out, node.Spec{Name: name(i), Role: node.Server, Ports: s.ports})
	}
	if s.params.Start == nil {
		return out
	}
	start := s.params.Start
	var env []string
	for _, key := range slices.Sorted(maps.Keys(start.Env)) {
		env = append(env, key+"="+start.Env[key])
	}
	for i := range s.common.Nodes {
		out = append(out, node.Spec{
			Name: name(i), Role: node.Server, Ports: s.ports, Image: start.Image, Named: start.Image != "", Env: env,
			Restartable: true, StopSignal: start.Stop,
			Command: s.command,
		})
	}
	return out
}

// command replaces the placeholders: {host}, {listen} (the address to listen on), {dir}, {PORT} (its own host:port),
// {PORT.port}, and {service-2.PORT} of another server.
func (s setup) command(p node.Place) []string {
	host := p.Host(p.Self)
	words := []string{"{host}", host, "{listen}", node.ListenOn(host), "{dir}", p.Dir}
	for _, port := range s.ports {
		own := p.Address(p.Self, port.Name)
		_, number, _ := net.SplitHostPort(own)
		words = append(words, "{"+port.Name+"}", own, "{"+port.Name+".port}", number)
		for i := range s.common.Nodes {
			words = append(words, "{"+name(i)+"."+port.Name+"}", p.Address(name(i), port.Name))
		}
	}
	fill := strings.NewReplacer(words...)
	out := make([]string, len(s.params.Start.Command))
	for i, word := range s.params.Start.Command {
		out[i] = fill.Replace(word)
	}
	return out
}

// Params returns nothing: the client program knows its service.
func (s setup) Params() any { return struct{}{} }

// Service returns the handle on the servers.
func (s setup) Service(nodes []node.Handle) topology.Service { return service{setup: s, nodes: nodes} }

// service answers what can be observed of servers from outside.
type service struct {
	setup
	nodes []node.Handle
}

// Facts lists the one fact that every service answers.
func (service) Facts() map[string]string {
	return map[string]string{chaos.FactServes: "it accepts connections and answers as in start.ready"}
}

// Ask asks one server.
func (v service) Ask(ctx context.Context, of, fact string) (string, error) {
	i := slices.IndexFunc(v.nodes, func(n node.Handle) bool { return n.Name() == of })
	if i < 0 || fact != chaos.FactServes {
		return "", fmt.Errorf("unknown fact %s of %s", fact, of)
	}
	return strconv.FormatBool(v.serves(ctx, v.nodes[i]) == nil), nil
}

// Ready asks all of them.
func (v service) Ready(ctx context.Context) error {
	for _, n := range v.nodes {
		if err := v.serves(ctx, n); err != nil {
			return fmt.Errorf("%s: %w", n.Name(), err)
		}
	}
	return nil
}

// patience bounds one question.
const patience = time.Second

func (v service) serves(ctx context.Context, n node.Handle) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	port, ready := v.ports[0].Name, Ready{}
	if v.params.Start != nil {
		ready = v.params.Start.Ready
		if ready.Port != "" {
			port = ready.Port
		}
	}
	conn, err := n.Dial(ctx, port)
	if err != nil {
		return err
	}
	defer conn.Close()
	if ready.Send == "" && ready.Expect == "" {
		return nil
	}
	end, _ := ctx.Deadline() // ctx always has one
	if err := conn.SetDeadline(end); err != nil {
		return err
	}
	if _, err := conn.Write([]byte(ready.Send)); err != nil {
		return err
	}
	answer, part := "", make([]byte, 4096)
	for !strings.Contains(answer, ready.Expect) {
		k, err := conn.Read(part)
		if err != nil {
			return fmt.Errorf("it answered %q, which does not contain %q: %w", answer, ready.Expect, err)
		}
		answer += string(part[:k])
	}
	return nil
}

// Describe returns what the scenario says.
func (v service) Describe(context.Context) map[string]string {
	out := map[string]string{
		"external.token": v.params.Token, "external.expires": strconv.FormatBool(v.params.Expires),
		"lock.ttl": v.common.TTL.String(),
	}
	if start := v.params.Start; start != nil {
		out["external.command"], out["external.image"] = strings.Join(start.Command, " "), start.Image
	}
	if len(v.params.Endpoints) > 0 {
		out["external.endpoints"] = strings.Join(v.params.Endpoints, ", ")
	}
	return out
}

// Close has nothing to free.
func (service) Close() error { return nil }
