package etcd

import (
	"net"
	"strconv"
	"strings"

	"go.etcd.io/etcd/api/v3/version"

	"github.com/lockquake/lockquake/internal/node"
)

func name(i int) string { return "etcd-" + strconv.Itoa(i+1) }

// Specs returns the members.
func (t setup) Specs() []node.Spec {
	specs := make([]node.Spec, 0, t.common.Nodes)
	for i := range t.common.Nodes {
		specs = append(specs, node.Spec{
			Name:        name(i),
			Role:        node.Server,
			Ports:       []node.Port{{Name: Port, Number: 2379}, {Name: peerPort, Number: 2380}},
			Image:       t.params.image(),
			Go:          true,
			Restartable: true,
			Command: func(p node.Place) []string {
				return t.params.command(seat{name: name(i), dir: p.Dir, members: t.common.Nodes, address: p.Address})
			},
		})
	}
	return specs
}

// seat is a member's place in the cluster.
type seat struct {
	name    string
	dir     string
	members int
	address func(node, port string) string
}

// command returns the argv of one member. It listens where ListenOn says, and advertises the address that the run
// gave it.
func (p Params) command(s seat) []string {
	url := func(node, port string) string { return "http://" + s.address(node, port) }
	all := make([]string, 0, s.members)
	for i := range s.members {
		all = append(all, name(i)+"="+url(name(i), peerPort))
	}
	argv := append(p.program(),
		"--name", s.name,
		"--data-dir", s.dir+"/data",
		"--listen-client-urls", listening(s.address(s.name, Port)),
		"--advertise-client-urls", url(s.name, Port),
		"--listen-peer-urls", listening(s.address(s.name, peerPort)),
		"--initial-advertise-peer-urls", url(s.name, peerPort),
		"--initial-cluster", strings.Join(all, ","),
		"--initial-cluster-state", "new",
		"--initial-cluster-token", "lockquake",
		"--heartbeat-interval", strconv.FormatInt(p.Heartbeat.Milliseconds(), 10),
		"--election-timeout", strconv.FormatInt(p.Election.Milliseconds(), 10),
		"--log-level", "warn",
		"--log-outputs", "stderr",
		"--logger", "zap", // 3.4 has another default
	)
	if p.Bump > 0 {
		argv = append(argv, "--bump-revision", strconv.FormatInt(p.Bump, 10))
	}
	if p.NoFsync {
		argv = append(argv, "--unsafe-no-fsync")
	}
	return argv
}

// program returns the first words of a member's command.
func (p Params) program() []string {
	if p.Version == version3_4 {
		return []string{"etcd"}
	}
	return node.Own("etcd")
}

// image returns the image key of the members.
func (p Params) image() string {
	if p.Version == version3_4 {
		return "etcd34"
	}
	return node.SelfProgram
}

// listening returns the URL for listening on the port of address.
func listening(address string) string {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return "http://" + address // for etcd's own error message
	}
	return "http://" + net.JoinHostPort(node.ListenOn(host), port)
}

// server describes what the members run, apart from the version that they report.
func (p Params) server() string {
	if p.Version == version3_4 {
		return "etcd 3.4 of its own, started as etcd"
	}
	return "built into lockquake, " + version.Version
}
