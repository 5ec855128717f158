// Package compose generates docker-compose.yml from the backends' descriptions of their nodes, and implements what its
// containers run besides the servers.
package compose

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lockquake/lockquake/backends/all"
	"github.com/lockquake/lockquake/internal/cli"
	"github.com/lockquake/lockquake/internal/cluster"
	"github.com/lockquake/lockquake/internal/node"
)

// Command is the verb compose.
func Command(std cli.Streams) *cobra.Command {
	return &cobra.Command{
		Use:    "compose",
		Short:  "Print docker-compose.yml: one profile for each backend",
		Hidden: true,
		Args:   cli.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			text, err := File(Backends()...)
			if err == nil {
				_, err = std.Out.Write(text)
			}
			return err
		},
	}
}

const composeHead = `# Each backend with the command lines that its runs have, for poking by hand: one profile each. No test uses it.
#
#   lockquake images                            (make images; make demo makes them too)
#   docker-compose --profile redlock up -d      (docker compose, where compose is of version 2)
#   docker-compose --profile redlock down -v
#
# The service that ends in -ready brings the nodes together and is healthy while the whole serves a write. Nodes have fixed
# addresses in one network. Made by "make compose" out of what the backends say of their nodes.
#
# Where those addresses or ports are taken, move them by a file .env beside this one:
#   LOCKQUAKE_NET=10.99      the network 10.99.0.0/16 in place of 10.127.0.0/16
#   LOCKQUAKE_PORTS=31       the ports 31101, ... in place of 20101, ...
#
# Attach to these servers with --provider local: clients that are containers of their own reach neither 127.0.0.1 nor this network.
#
# The port that clients use is published on this machine's loopback address alone, 127.0.0.1. Sentinels and the nodes of a
# Redis Cluster answer with the addresses of their network, which reach from this machine only where containers run on it.
`

// Backends returns the names of the backends that have nodes.
func Backends() []string {
	var out []string
	for _, b := range all.All() {
		if !b.InProcess {
			out = append(out, b.Name)
		}
	}
	return out
}

// File returns the text of docker-compose.yml for some backends. Values are written as JSON, which is valid YAML and
// needs no quoting rules.
func File(names ...string) ([]byte, error) {
	var ports, services bytes.Buffer
	for _, name := range names {
		p, err := New(name)
		if err != nil {
			return nil, err
		}
		for i, n := range p.Nodes {
			s, err := p.service(i)
			if err != nil {
				return nil, err
			}
			s.write(&services, p.serviceName(n.Name()))
			fmt.Fprintf(&ports, "#   %d  %s\n", p.Published(i), p.serviceName(n.Name()))
		}
		p.readyService().write(&services, name+"-ready")
	}
	network := movable(fmt.Sprintf("networks:\n  default: {ipam: {config: [{subnet: \"%s.0.0/16\"}]}}\n", composeNet))
	return []byte(composeHead + ports.String() + "\nservices:\n" + services.String() + network), nil
}

// composeService is a service of docker-compose.yml, with its keys in this order.
type composeService []struct {
	key   string
	value any
}

func (s composeService) write(b *bytes.Buffer, name string) {
	fmt.Fprintf(b, "  %s:\n", name)
	for _, pair := range s {
		var v bytes.Buffer
		enc := json.NewEncoder(&v)
		enc.SetEscapeHTML(false)
		// Strings, and lists and maps of strings, can always be encoded.
		_ = enc.Encode(pair.value)
		// Compose expands a dollar sign as a variable.
		fmt.Fprintf(b, "    %s: %s\n", pair.key, movable(strings.TrimSpace(strings.ReplaceAll(v.String(), "$", "$$"))))
	}
	b.WriteString("\n")
}

var (
	composeAddress = regexp.MustCompile(`\b` + regexp.QuoteMeta(composeNet) + `\b`)
	composePort    = regexp.MustCompile(`"127\.0\.0\.1:20([0-9]{3}):`)
)

// movable replaces the network and the ports of this machine by variables with the current values as defaults.
func movable(text string) string {
	text = composeAddress.ReplaceAllString(text, "$${"+NetVariable+":-"+composeNet+"}")
	return composePort.ReplaceAllString(text, `"127.0.0.1:$${LOCKQUAKE_PORTS:-20}$1:`)
}

// serviceName returns a node's name that is unique among all backends.
func (p ByHand) serviceName(node string) string {
	if strings.HasPrefix(node, p.backend+"-") {
		return node
	}
	return p.backend + "-" + node
}

// MostProfiles is the highest topology.Maker.Profile that has ports. PortsEach is the least number of ports of a
// profile.
const (
	MostProfiles = 39
	PortsEach    = 20
)

// Published returns the loopback port of this machine that leads to a node. Profile 1 begins at 20101, 2 at 20201, and
// so on; all are below 21000. Profile 11 shares the hundred of 1, and begins at 20121.
func (p ByHand) Published(i int) int {
	return 20001 + 100*(p.Profile%10) + PortsEach*(p.Profile/10) + i
}

// service returns the service of a server node.
func (p ByHand) service(i int) (composeService, error) {
	n, spec := p.Nodes[i], p.Specs[i]
	argv := n.ContainerCommand()
	test, err := p.healthOf(spec)
	if err != nil {
		return nil, err
	}
	s := p.container(spec.Image, n.Name(), argv)
	if env := environment(spec.Image, spec.Env); len(env) > 0 {
		s = append(s, composeService{{"environment", env}}...)
	}
	return append(s, composeService{
		{"ports", []string{fmt.Sprintf("127.0.0.1:%d:%d", p.Published(i), spec.Ports[0].Number)}},
		{"networks", map[string]any{"default": map[string]string{"ipv4_address": n.Host()}}},
		{"healthcheck", healthcheck(test)},
	}...), nil
}

// readyService returns the service that brings the nodes together.
func (p ByHand) readyService() composeService {
	verb := []string{"/lockquake", "node", "ready", p.backend}
	return append(p.container(node.SelfProgram, "ready", verb), composeService{
		{"environment", environment(node.SelfProgram, nil)},
		{"healthcheck", healthcheck(append(append([]string{"CMD"}, verb...), "--check"))},
	}...)
}

// environment adds the network for lockquake's own program, which asks the nodes by their addresses.
func environment(image string, of []string) []string {
	if image != node.SelfProgram {
		return of
	}
	return append(slices.Clone(of), NetVariable+"="+composeNet)
}

// container returns the keys that all services have.
func (p ByHand) container(image, hostname string, argv []string) composeService {
	return composeService{
		{"profiles", []string{p.backend}},
		{"image", cluster.ContainerImage(image)},
		{"hostname", hostname},
		{"entrypoint", argv[:1]},
		{"command", argv[1:]},
		{"working_dir", cluster.ContainerData},
		{"volumes", []string{cluster.ContainerData}},
	}
}

func healthcheck(test []string) map[string]any {
	return map[string]any{"test": test, "interval": "500ms", "timeout": "3s", "retries": 120}
}

// healthOf returns the command by which a container checks its own node.
func (p ByHand) healthOf(s node.Spec) ([]string, error) {
	switch {
	case s.Image == node.SelfProgram:
		return []string{"CMD", "/lockquake", "node", "serves", p.backend, s.Name}, nil
	case p.health == nil:
		return nil, fmt.Errorf("backend %s: there is no health check for image %q",
			p.backend, s.Image)
	}
	return p.health(s.Ports[0].Number), nil
}
