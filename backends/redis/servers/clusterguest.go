package servers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/lockquake/lockquake/backends/redis/access"
	"github.com/lockquake/lockquake/backends/topology"
	"github.com/lockquake/lockquake/internal/node"
)

// clusterGuest is a run's access to an external cluster. The run knows only the endpoints that the user named.
type clusterGuest struct {
	endpoints members
	common    topology.Common
	login     node.Login
	announced []string // addresses of other servers to which clients are redirected
	found     members  // those of them that were asked
	route     *redis.ClusterClient
	primaries int // primaries that took a write
}

// attached finds the primaries at the addresses that the cluster gives to clients. All endpoints must agree on them.
// Primaries that are not endpoints are reached there, with the endpoints' login. It also returns the slot ranges.
func (g *clusterGuest) attached(ctx context.Context) (attachedServers, []redis.ClusterSlot, error) {
	var shards []redis.ClusterSlot
	var primaries []string
	for i, m := range g.endpoints {
		its, seen, err := shardsOf(ctx, m)
		if err != nil {
			return attachedServers{}, nil, err
		}
		if i > 0 && !slices.Equal(seen, primaries) {
			return attachedServers{}, nil, fmt.Errorf("according to %s, the primaries of its cluster are %s; according to %s, they are %s",
				m.address, strings.Join(seen, ", "),
				g.endpoints[0].address, strings.Join(primaries, ", "))
		}
		shards, primaries = its, seen
	}
	g.announced = nil
	for _, r := range shards {
		for _, n := range r.Nodes {
			if host, port, err := net.SplitHostPort(n.Addr); err != nil || host == "" || host == "?" || port == "0" {
				return attachedServers{}, nil,
					fmt.Errorf("the cluster of %s gives clients %q as the address of a server; it must announce one that they can use (cluster-announce-ip, tls-cluster)",
						g.endpoints[0].address, n.Addr)
			}
			if _, err := g.endpoints.find(g.endpoints.at(n.Addr)); err != nil && !slices.Contains(g.announced, n.Addr) {
				g.announced = append(g.announced, n.Addr)
			}
		}
	}
	v := attachedServers{common: g.common, route: g.router()}
	for _, address := range primaries {
		v.servers = append(v.servers, g.serverAt(address))
	}
	return v, shards, nil
}

// serverAt returns the server at an address: an endpoint, or one that the cluster announced.
func (g *clusterGuest) serverAt(address string) member {
	if m, err := g.endpoints.find(g.endpoints.at(address)); err == nil {
		return m
	}
	if m, err := g.found.find(address); err == nil {
		return m
	}
	m := newMember(foundServer{address, g.login}, seen{
		port: access.Port, timeout: observeTimeout,
		keys: access.Keyspace(g.common.Prefix()),
	})
	g.found = append(g.found, m)
	return m
}

// router returns a client that follows a key to its owner.
func (g *clusterGuest) router() redis.Cmdable {
	if g.route == nil {
		o := access.Options(observeTimeout, g.login)
		o.ClientName, o.Dialer = observerName, access.Detour(nil, observeTimeout, g.login.TLS)
		for _, m := range g.endpoints {
			o.Addrs = append(o.Addrs, m.address)
		}
		g.route = access.NewClusterClient(o)
	}
	return g.route
}

func (g *clusterGuest) close() error {
	err := g.found.Close()
	if g.route != nil {
		err = errors.Join(err, g.route.Close())
	}
	return err
}

// ready makes every primary take a write. It does not change the cluster.
func (g *clusterGuest) ready(ctx context.Context) error {
	v, shards, err := g.attached(ctx)
	if err != nil {
		return err
	}
	if err := v.mark(ctx); err != nil {
		return err
	}
	g.primaries = len(v.servers)
	return writeAll(ctx, g.endpoints, v.servers, 0, func(slot int) string {
		for _, r := range shards {
			if r.Start <= slot && slot <= r.End {
				return r.Nodes[0].Addr
			}
		}
		return ""
	})
}

// foundServer is a server that a cluster announced.
type foundServer struct {
	address string
	login   node.Login
}

// Name returns its address: the run has no other name for it.
func (f foundServer) Name() string { return f.address }

// Address returns the announced address.
func (f foundServer) Address(string) string { return f.address }

// Login returns the endpoints' login.
func (f foundServer) Login() node.Login { return f.login }

// Dial connects to it.
func (f foundServer) Dial(ctx context.Context, _ string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "tcp", f.address)
}
