package redis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/lockquake/lockquake/backends/topology"
	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/internal/node"
)

var (
	_ topology.Guest = (*service)(nil)
	_ topology.Guest = (*fiveService)(nil)
	_ topology.Guest = (*sentinelService)(nil)
	_ topology.Guest = (*clusterService)(nil)

	_ topology.Announcer = (*clusterService)(nil)
)

const (
	// guestBatch is how many keys a server is asked to look at in one step of a SCAN, and to remove at once.
	guestBatch = 500
	// guestKeys is how many keys of a server are looked at, in less than a tenth of a second of its time.
	guestKeys = 100_000
)

// checkPrefix refuses a prefix that could not begin the keys of a lock: what stands in braces decides about their slot.
func checkPrefix(c topology.Common) error {
	if strings.ContainsAny(c.Prefix(), "{}") {
		return fmt.Errorf("prefix is %q; it must not have braces, which are Redis Cluster's hash tag", c.Attached.Under)
	}
	return nil
}

// checkMaster refuses Sentinels of which nobody said what they call the primary.
func checkMaster(c topology.Common) error {
	if c.Attached != nil && c.Attached.Master == "" {
		return errors.New("master is missing; it is the name by which the Sentinels know the primary, such as mymaster")
	}
	return nil
}

// attachedServers are the servers of a service that take writes. Where they are somebody else's, the run enters and leaves them.
type attachedServers struct {
	members // those that take writes
	common  topology.Common
	// route sends each command to the server that has its key, where they share the keys; nil: every server has all of them.
	route redis.Cmdable
}

// Vacant looks for keys on the primary, which the Sentinels name.
func (s *sentinelService) Vacant(ctx context.Context) (string, error) {
	v, err := s.attached(ctx)
	if err != nil {
		return "", err
	}
	return v.Vacant(ctx)
}

// Remove deletes the run's keys on the primary; its replicas follow.
func (s *sentinelService) Remove(ctx context.Context, locks []string) (string, error) {
	v, err := s.attached(ctx)
	if err != nil {
		return "", err
	}
	return v.Remove(ctx, locks)
}

func (s *sentinelService) attached(ctx context.Context) (attachedServers, error) {
	primary, err := s.primary(ctx)
	return attachedServers{members: members{primary}, common: s.common}, err
}

// clusterGuest is a run's way into somebody else's cluster, of which it knows the endpoints that the user named.
type clusterGuest struct {
	endpoints members
	common    topology.Common
	login     node.Login
	announced []string // addresses of other servers, where clients are sent
	found     members  // those of them that were asked
	route     *redis.ClusterClient
	primaries int // that took a write
}

// Vacant looks for keys on every primary.
func (g *clusterGuest) Vacant(ctx context.Context) (string, error) {
	v, _, err := g.attached(ctx)
	if err != nil {
		return "", err
	}
	return v.Vacant(ctx)
}

// Remove deletes the run's keys on every primary; the replicas follow.
func (g *clusterGuest) Remove(ctx context.Context, locks []string) (string, error) {
	v, _, err := g.attached(ctx)
	if err != nil {
		return "", err
	}
	return v.Remove(ctx, locks)
}

// Announced lists the addresses at which the cluster has servers beside the endpoints: clients are sent there.
func (g *clusterGuest) Announced() []string { return g.announced }

// attached finds the primaries by the addresses that the cluster gives to clients. All endpoints must agree upon them. Those that are no
// endpoints are reached there, with the endpoints' login. It also returns who has which slots.
func (g *clusterGuest) attached(ctx context.Context) (attachedServers, []redis.ClusterSlot, error) {
	var shards []redis.ClusterSlot
	var primaries []string
	for i, m := range g.endpoints {
		its, seen, err := m.shards(ctx)
		if err != nil {
			return attachedServers{}, nil, err
		}
		if i > 0 && !slices.Equal(seen, primaries) {
			return attachedServers{}, nil, fmt.Errorf("%s takes %s for the primaries of its cluster, and %s takes %s", m.address, strings.Join(seen, ", "),
				g.endpoints[0].address, strings.Join(primaries, ", "))
		}
		shards, primaries = its, seen
	}
	g.announced = nil
	for _, r := range shards {
		for _, n := range r.Nodes {
			if host, port, err := net.SplitHostPort(n.Addr); err != nil || host == "" || host == "?" || port == "0" {
				return attachedServers{}, nil, fmt.Errorf("the cluster of %s gives clients %q as the address of a server; it must announce one that they can use (cluster-announce-ip, tls-cluster)",
					g.endpoints[0].address, n.Addr)
			}
			if _, err := g.endpoints.find(g.endpoints.at(n.Addr)); err != nil && !slices.Contains(g.announced, n.Addr) {
				g.announced = append(g.announced, n.Addr)
			}
		}
	}
	v := attachedServers{common: g.common, route: g.router()}
	for _, address := range primaries {
		v.members = append(v.members, g.serverAt(address))
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
	m := newMember(foundServer{address, g.login}, seen{port: Port, timeout: observeTimeout, keys: keyspace(g.common.Prefix())})
	g.found = append(g.found, m)
	return m
}

// router makes a client that goes to whoever has a key.
func (g *clusterGuest) router() redis.Cmdable {
	if g.route == nil {
		o := options(observeTimeout, g.login)
		o.ClientName, o.Dialer = observerName, detour(nil, observeTimeout, g.login.TLS)
		for _, m := range g.endpoints {
			o.Addrs = append(o.Addrs, m.address)
		}
		g.route = newClusterClient(o)
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

// ready has every primary take a write. It forms nothing.
func (g *clusterGuest) ready(ctx context.Context) error {
	v, shards, err := g.attached(ctx)
	if err != nil {
		return err
	}
	if err := v.mark(ctx); err != nil {
		return err
	}
	g.primaries = len(v.members)
	return g.endpoints.writeAll(ctx, v.members, 0, func(slot int) string {
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

// Name is its address: the run has no other name for it.
func (f foundServer) Name() string { return f.address }

// Address is the one that was announced.
func (f foundServer) Address(string) string { return f.address }

// Login is that of the endpoints.
func (f foundServer) Login() node.Login { return f.login }

// Dial connects to it.
func (f foundServer) Dial(ctx context.Context, _ string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "tcp", f.address)
}

// primary finds the primary of somebody else's Sentinels.
func (n sentinelNodes) primary(ctx context.Context) (member, error) {
	for _, m := range n.sentinels {
		if err := m.client.Ping(ctx).Err(); err != nil {
			return member{}, fmt.Errorf("%s at %s does not answer: %w", m.name, m.address, err)
		}
	}
	name, err := n.elected(ctx)
	if err != nil {
		return member{}, fmt.Errorf("%w; `endpoints` must have the addresses that the Sentinels give to clients", err)
	}
	return n.members.find(name)
}

// marker is a key below a prefix that a run leaves there until it has removed the rest. Whatever else a server has, one look tells whether
// another run is there, or was cut short.
func marker(under string) string { return under + "lockquake" }

// clients lists by whom each key is reached: one that finds its server, or every server by itself.
func (v attachedServers) clients() []redis.Cmdable {
	if v.route != nil {
		return []redis.Cmdable{v.route}
	}
	var out []redis.Cmdable
	for _, m := range v.members {
		out = append(out, m.client)
	}
	return out
}

// Vacant is an error where any server has the marker, or a key with that beginning among those that are looked at. It says what was not. A
// server with a role other than master is refused: it takes no writes.
func (v attachedServers) Vacant(ctx context.Context) (string, error) {
	under := v.common.Attached.Under
	for _, m := range v.members {
		role, err := m.ask(ctx, chaos.FactRole)
		if err != nil {
			return "", fmt.Errorf("%s does not answer: %w", m.address, err)
		}
		if role != "master" {
			return "", fmt.Errorf("%s is a %s; the primary is needed", m.address, role)
		}
	}
	for _, c := range v.clients() {
		run, err := c.Get(ctx, marker(under)).Result()
		if err == nil {
			return "", topology.Occupied("key " + marker(under) + ": run " + run + " is there, or was cut short")
		}
		if !errors.Is(err, redis.Nil) {
			return "", fmt.Errorf("GET %s: %w", marker(under), err)
		}
	}
	var partly []string
	for _, m := range v.members {
		missed, err := m.scan(ctx, under, func(keys []string) error {
			return topology.Occupied("key " + keys[0] + " on " + m.address)
		})
		if err != nil {
			return "", err
		}
		if missed != "" {
			partly = append(partly, missed)
		}
	}
	return strings.Join(partly, ", "), nil
}

// mark puts the marker up on somebody else's servers.
func (v attachedServers) mark(ctx context.Context) error {
	if v.common.Attached == nil {
		return nil
	}
	for _, c := range v.clients() {
		if err := c.Set(ctx, marker(v.common.Attached.Under), v.common.Attached.Run, 0).Err(); err != nil {
			return fmt.Errorf("SET %s: %w", marker(v.common.Attached.Under), err)
		}
	}
	return nil
}

// Ready puts the marker up, and has every server take a write.
func (v attachedServers) Ready(ctx context.Context) error {
	if err := v.mark(ctx); err != nil {
		return err
	}
	return v.members.Ready(ctx)
}

// Remove deletes the keys of the run's locks by their names, what else a look finds below the run's prefix, and in the end the marker.
func (v attachedServers) Remove(ctx context.Context, locks []string) (string, error) {
	prefix := v.common.Prefix()
	ours := keyspace(prefix)
	names := []string{ours.ready()}
	if v.route != nil {
		names = ours.allReady()
	}
	for _, l := range locks {
		names = append(append(names, ours.keys(l)...), ours.counter(l), ours.probe(l))
	}
	removed := 0
	for _, c := range v.clients() {
		n, err := deleteKeys(ctx, c, names)
		if err != nil {
			return "", err
		}
		removed += n
	}
	for _, m := range v.members {
		_, err := m.scan(ctx, prefix, func(keys []string) error {
			n, err := deleteKeys(ctx, m.client, keys)
			removed += n
			return err
		})
		if err != nil {
			return "", err
		}
	}
	for _, c := range v.clients() {
		if _, err := deleteKeys(ctx, c, []string{marker(v.common.Attached.Under)}); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("keys below %s: %d", prefix, removed), nil
}

// deleteKeys deletes keys, each by a command of its own: the servers of a cluster take no others.
func deleteKeys(ctx context.Context, c redis.Cmdable, keys []string) (int, error) {
	removed := 0
	for batch := range slices.Chunk(keys, guestBatch) {
		answers, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
			for _, k := range batch {
				p.Del(ctx, k)
			}
			return nil
		})
		if err != nil {
			return removed, fmt.Errorf("delete %d keys from %s on: %w", len(batch), batch[0], err)
		}
		for _, a := range answers {
			if n, ok := a.(interface{ Val() int64 }); ok {
				removed += int(n.Val())
			}
		}
	}
	return removed, nil
}

// scan goes through the keys with that beginning, and stops at an error. A SCAN looks at every key of the server, whatever it matches, so on
// a large one scan stops after guestKeys, and says so.
func (m member) scan(ctx context.Context, prefix string, found func(keys []string) error) (missed string, err error) {
	var cursor uint64
	for looked := 0; ; {
		keys, next, err := m.client.Scan(ctx, cursor, literal.Replace(prefix)+"*", guestBatch).Result()
		if err != nil {
			return "", fmt.Errorf("SCAN of %s: %w", m.address, err)
		}
		for i := range keys {
			if !strings.HasPrefix(keys[i], prefix) { // whatever the pattern was taken for
				return "", fmt.Errorf("SCAN of %s: it answers with the key %s", m.address, keys[i])
			}
		}
		if len(keys) > 0 {
			if err := found(keys); err != nil {
				return "", err
			}
		}
		looked += guestBatch
		if cursor = next; cursor == 0 {
			return "", nil
		}
		if looked >= guestKeys {
			all, err := m.client.DBSize(ctx).Result()
			return fmt.Sprintf("some %d of %d keys of %s", looked, all, m.address), err
		}
	}
}

// literal takes their meaning from the signs of a pattern.
var literal = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`)

// readyAsGuest has the primary take a write. It forms nothing, and sets no timer of a Sentinel.
func (s *sentinelService) readyAsGuest(ctx context.Context) error {
	v, err := s.attached(ctx)
	if err != nil {
		return err
	}
	return v.Ready(ctx)
}
