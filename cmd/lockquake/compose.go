package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lockquake/lockquake/backends/all"
	"github.com/lockquake/lockquake/internal/cluster"
)

func composeCommand(std streams) *cobra.Command {
	return &cobra.Command{
		Use:    "compose",
		Short:  "Print docker-compose.yml: one profile for each backend",
		Hidden: true,
		Args:   noArgs,
		RunE: func(*cobra.Command, []string) error {
			text, err := composeFile(servedBackends()...)
			if err == nil {
				_, err = std.out.Write(text)
			}
			return err
		},
	}
}

const composeHead = `# Each backend with the command lines that its runs have, for poking by hand: one profile each. No test uses it.
#
#   make images
#   docker-compose --profile redlock up -d      (docker compose, where compose is of version 2)
#   docker-compose --profile redlock down -v
#
# The service that ends in -ready brings the nodes together and is healthy while the whole serves a write. Nodes have fixed
# addresses in a network of their own. Made by "make compose" out of what the backends say of their nodes.

`

// servedBackends names the backends that have nodes.
func servedBackends() []string {
	var out []string
	for _, b := range all.All() {
		if !b.InProcess {
			out = append(out, b.Name)
		}
	}
	return out
}

// composeFile is the text of docker-compose.yml for some backends. Values are written as JSON, which YAML reads, so that none needs care.
func composeFile(names ...string) ([]byte, error) {
	var services, networks bytes.Buffer
	for _, name := range names {
		p, err := newByHand(name)
		if err != nil {
			return nil, err
		}
		for i, n := range p.nodes {
			s, err := p.service(i)
			if err != nil {
				return nil, err
			}
			s.write(&services, p.serviceName(n.Name()))
		}
		p.readyService().write(&services, name+"-ready")
		fmt.Fprintf(&networks, "  %s: {ipam: {config: [{subnet: %s}]}}\n", name, p.network)
	}
	return append([]byte(composeHead+"services:\n"), append(services.Bytes(), "networks:\n"+networks.String()...)...), nil
}

// composeService is what a service of docker-compose.yml says, in this order.
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
		// Strings, and lists and maps of them, can always be written.
		_ = enc.Encode(pair.value)
		// Compose takes a dollar sign for the beginning of a variable.
		fmt.Fprintf(b, "    %s: %s\n", pair.key, strings.TrimSpace(strings.ReplaceAll(v.String(), "$", "$$")))
	}
	b.WriteString("\n")
}

// serviceName is the name of a node among those of all backends.
func (p byHand) serviceName(node string) string {
	if strings.HasPrefix(node, p.backend+"-") {
		return node
	}
	return p.backend + "-" + node
}

// service is one server node.
func (p byHand) service(i int) (composeService, error) {
	n, spec := p.nodes[i], p.specs[i]
	argv := n.ContainerCommand()
	test, err := p.health(spec)
	if err != nil {
		return nil, err
	}
	s := p.container(spec.Image, n.Name(), argv)
	if len(spec.Env) > 0 {
		s = append(s, composeService{{"environment", spec.Env}}...)
	}
	return append(s, composeService{
		{"networks", map[string]any{p.backend: map[string]string{"ipv4_address": n.Host()}}},
		{"healthcheck", healthcheck(test)},
	}...), nil
}

// readyService is the container that brings the nodes together.
func (p byHand) readyService() composeService {
	verb := []string{"/lockquake", "node", "ready", p.backend}
	return append(p.container(cluster.SelfProgram, "ready", verb), composeService{
		{"networks", []string{p.backend}},
		{"healthcheck", healthcheck(append(append([]string{"CMD"}, verb...), "--check"))},
	}...)
}

// container is what all services have.
func (p byHand) container(image, hostname string, argv []string) composeService {
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

// health is how a container finds out whether its own node answers, with what its image has.
func (p byHand) health(s cluster.Spec) ([]string, error) {
	port := s.Ports[0].Number
	switch s.Image {
	case cluster.SelfProgram:
		return []string{"CMD", "/lockquake", "node", "serves", p.backend, s.Name}, nil
	case "redis":
		return []string{"CMD-SHELL", fmt.Sprintf("redis-cli -p %d ping | grep -q PONG", port)}, nil
	case "zookeeper":
		return []string{"CMD", "bash", "-c", fmt.Sprintf("exec 3<>/dev/tcp/127.0.0.1/%d; echo srvr >&3; grep -q Mode <&3", port)}, nil
	case "postgres":
		return []string{"CMD-SHELL", fmt.Sprintf("pg_isready -h 127.0.0.1 -p %d", port)}, nil
	}
	return nil, fmt.Errorf("backend %s: nothing is known of how an image %q is asked whether its server answers", p.backend, s.Image)
}
