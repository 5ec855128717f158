package redis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/cluster"
)

// readyKey is written by Ready; no lock has a name like it.
const readyKey = "lockquake:ready"

// observerName is what the harness's own connections are called.
const observerName = "lockquake-observer"

// holderFact asks for the value at the key of a lock: the random id of its holder.
const holderFact = history.FactHolder

var (
	_ backends.Keeper = (*service)(nil)
	_ backends.Keeper = (*sentinelService)(nil)
	_ backends.Keeper = (*clusterService)(nil)
	_ backends.Keeper = (*fiveService)(nil)
)

// Keepers is the one server.
func (s *service) Keepers() []string { return s.members.names() }

// Keepers are the data servers: a replica may not have heard of a grant.
func (s *sentinelService) Keepers() []string { return s.servers.names() }

// Keepers are all servers, of which those without the lock's slot have nothing.
func (s *clusterService) Keepers() []string { return s.servers.names() }

// Keepers are all servers.
func (s *fiveService) Keepers() []string { return s.members.names() }

// member is one server as the harness sees it.
type member struct {
	name    string
	address string // as the servers know each other
	client  *redis.Client
}

// newMember makes a client that connects through dial, the harness's own way to the node.
func newMember(name string, dial func(ctx context.Context, port string) (net.Conn, error), timeout time.Duration) member {
	o := options(timeout).Simple()
	o.ClientName = observerName
	o.Dialer = func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx, Port) }
	return member{name: name, client: redis.NewClient(o)}
}

// members is the servers of one kind.
type members []member

// membersOf makes a member of each node that has the port.
func membersOf(nodes []*cluster.Node, port string, timeout time.Duration) members {
	var out members
	for _, n := range nodes {
		if n.Address(port) == "" {
			continue
		}
		m := newMember(n.Name(), func(ctx context.Context, _ string) (net.Conn, error) { return n.Dial(ctx, port) }, timeout)
		m.address = n.Address(port)
		out = append(out, m)
	}
	return out
}

// find returns the member of that name.
func (ms members) find(node string) (member, error) {
	for _, m := range ms {
		if m.name == node {
			return m, nil
		}
	}
	return member{}, fmt.Errorf("redis has no node %q", node)
}

// names lists the members.
func (ms members) names() []string {
	var out []string
	for _, m := range ms {
		out = append(out, m.name)
	}
	return out
}

// at returns the name of the member at an address, or the address where none of ours is there.
func (ms members) at(address string) string {
	for _, m := range ms {
		if m.address == address {
			return m.name
		}
	}
	return address
}

// version asks for the version of the first that answers.
func (ms members) version(ctx context.Context) string {
	err := errors.New("there are no servers")
	for _, m := range ms {
		var section map[string]string
		if section, err = m.info(ctx, "server"); err == nil {
			return section["redis_version"]
		}
	}
	return "unknown: " + err.Error()
}

// close frees the connections.
func (ms members) close() error {
	var errs []error
	for _, m := range ms {
		errs = append(errs, m.client.Close())
	}
	return errors.Join(errs...)
}

// serverFacts lists what every server can be asked, whatever its topology. LOCK stands for the name of a lock.
func serverFacts() map[string]string {
	return map[string]string{
		chaos.FactServes:    "the server answers PING",
		chaos.FactRole:      "first word of the server's ROLE: master or slave",
		"clock":             "the server's wall clock by TIME, RFC 3339 with microseconds, UTC",
		"run-id":            "the server's run_id: another after each start",
		chaos.FactSyncing:   "an fsync of the append-only file waits or is under way (aof_pending_bio_fsync)",
		"delayed-fsyncs":    "how often the server put a write off because an fsync took too long (aof_delayed_fsync)",
		chaos.FactLastWrite: "the value that the last of these writes left",
		"fresh-second":      "true when the server has begun no fsync but that of this second, which is over, and begins none for half a second; asking waits for it",
		chaos.FactWrites:    "the server takes a write at a key that no lock has; asking writes",
		holderFact + "LOCK": `the value at the key of lock LOCK on this very server, or "none"`,
		history.FactTakes + "LOCK": `"true" if the server takes a write beside the key of lock LOCK, in the same slot, else the word with which it ` +
			"refuses, such as READONLY, NOREPLICAS or CLUSTERDOWN; asking writes",
	}
}

// ask answers the facts that every server knows.
func (m member) ask(ctx context.Context, fact string) (string, error) {
	if name, ok := strings.CutPrefix(fact, holderFact); ok {
		return m.holder(ctx, name)
	}
	if name, ok := strings.CutPrefix(fact, history.FactTakes); ok {
		return m.takes(ctx, name)
	}
	switch fact {
	case chaos.FactServes:
		return strconv.FormatBool(m.client.Ping(ctx).Err() == nil), nil
	case chaos.FactRole:
		v, err := m.client.Do(ctx, "ROLE").Slice()
		if err == nil && len(v) == 0 {
			err = errors.New("an empty answer")
		}
		if err != nil {
			return "", fmt.Errorf("ROLE of %s: %w", m.name, err)
		}
		return fmt.Sprint(v[0]), nil
	case "clock":
		t, err := m.client.Time(ctx).Result()
		if err != nil {
			return "", fmt.Errorf("TIME of %s: %w", m.name, err)
		}
		return clockText(t), nil
	case chaos.FactSyncing, "delayed-fsyncs":
		section, err := m.info(ctx, "persistence")
		if fact == chaos.FactSyncing {
			pending := section["aof_pending_bio_fsync"]
			return strconv.FormatBool(pending != "" && pending != "0"), err
		}
		return section["aof_delayed_fsync"], err
	case chaos.FactLastWrite:
		return m.client.Get(ctx, readyKey).Result()
	case "fresh-second":
		return m.freshSecond(ctx)
	case chaos.FactWrites:
		err := m.write(ctx, readyKey)
		return strconv.FormatBool(err == nil), err
	case "run-id":
		section, err := m.info(ctx, "server")
		return section["run_id"], err
	}
	return "", fmt.Errorf("redis has no fact %q", fact)
}

func clockText(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000000Z07:00") }

func (m member) holder(ctx context.Context, name string) (string, error) {
	v, err := m.client.MGet(ctx, keys(name)...).Result()
	return holderIn(v), err
}

// takes writes a key in the slot of a lock's.
func (m member) takes(ctx context.Context, name string) (string, error) {
	err := m.client.Set(ctx, "lockquake:probe:{"+key(name)+"}", m.name, time.Minute).Err()
	var answer redis.Error
	switch {
	case err == nil:
		return "true", nil
	case errors.As(err, &answer):
		word, _, _ := strings.Cut(answer.Error(), " ")
		return word, nil
	}
	return "", fmt.Errorf("SET on %s: %w", m.name, err)
}

// keys lists where a lock may be kept, all in one slot of Redis Cluster: by most locks, and by rueidislock.
func keys(name string) []string { return []string{key(name), rueidisKey(name)} }

// holderIn is the holder's id among the values at keys.
func holderIn(values []any) string {
	for i, v := range values {
		switch text, ok := v.(string); {
		case ok && i == 0:
			return text
		case ok:
			return printable(text)
		}
	}
	return "none"
}

// info returns the fields of one section of INFO.
func (m member) info(ctx context.Context, section string) (map[string]string, error) {
	text, err := m.client.Info(ctx, section).Result()
	if err != nil {
		return nil, fmt.Errorf("INFO %s of %s: %w", section, m.name, err)
	}
	return fields(text), nil
}

// fields reads lines of the form "name:value".
func fields(text string) map[string]string {
	out := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			out[name] = value
		}
	}
	return out
}

// write has the server take a value at the key and give it back.
func (m member) write(ctx context.Context, at string) error {
	want := time.Now().String()
	if err := m.client.Set(ctx, at, want, time.Minute).Err(); err != nil {
		return fmt.Errorf("%s does not take a write: %w", m.name, err)
	}
	got, err := m.client.Get(ctx, at).Result()
	if err != nil {
		return fmt.Errorf("%s does not serve a read: %w", m.name, err)
	}
	if got != want {
		return fmt.Errorf("%s serves %q where %q was written", m.name, got, want)
	}
	return nil
}
