package servers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/lockquake/lockquake/backends/redis/access"
	"github.com/lockquake/lockquake/backends/topology"
	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/internal/node"
)

// observerName is the name of the harness's own connections.
const observerName = "lockquake-observer"

// holderFact asks for the value at a lock's key: the random id of its holder.
const holderFact = history.FactHolder

// member is one server as the harness sees it.
type member struct {
	name     string
	address  string // under which the servers know each other
	password string
	keys     access.Keyspace
	master   string // the primary's name in the Sentinels' configuration
	client   *redis.Client
}

// seen is how the harness asks servers.
type seen struct {
	port    string
	timeout time.Duration
	keys    access.Keyspace
	master  string // "": the package's own name
}

// newMember returns a member with a client for one port of the node, dialled in the harness's own way.
func newMember(n node.Handle, s seen) member {
	login := n.Login()
	o := access.Options(s.timeout, login).Simple()
	o.ClientName = observerName
	o.Dialer = func(ctx context.Context, _, _ string) (net.Conn, error) {
		conn, err := n.Dial(ctx, s.port)
		if err != nil {
			return nil, err
		}
		return login.TLS.Over(ctx, conn, n.Address(s.port))
	}
	return member{
		name: n.Name(), address: n.Address(s.port), password: login.Password, keys: s.keys,
		master: cmp.Or(s.master, access.Monitored), client: redis.NewClient(o),
	}
}

// members is the servers of one kind. Unless a topology overrides it, each answers for itself.
type members []member

// Facts lists the facts.
func (members) Facts() map[string]string { return serverFacts() }

// Ask asks one server for one fact.
func (ms members) Ask(ctx context.Context, node, fact string) (string, error) {
	m, err := ms.find(node)
	if err != nil {
		return "", err
	}
	return m.ask(ctx, fact)
}

// Ready writes a value to every server and reads it back, on all in parallel.
func (ms members) Ready(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, m := range ms {
		group.Go(func() error { return m.write(ctx, m.client, m.keys.Ready()) })
	}
	return group.Wait()
}

// membersOf returns a member for each node that has the port.
func membersOf(nodes []node.Handle, s seen) members {
	var out members
	for _, n := range nodes {
		if n.Address(s.port) == "" {
			continue
		}
		out = append(out, newMember(n, s))
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

// Keepers returns all servers: a replica may not have received a grant, and cluster servers without the lock's slot
// have nothing.
func (ms members) Keepers() []string {
	var out []string
	for _, m := range ms {
		out = append(out, m.name)
	}
	return out
}

// at returns the name of the member at an address, or the address if there is none.
func (ms members) at(address string) string {
	for _, m := range ms {
		if m.address == address {
			return m.name
		}
	}
	return address
}

// version returns the version of the first server that answers.
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

// Close frees the connections.
func (ms members) Close() error {
	var errs []error
	for _, m := range ms {
		errs = append(errs, m.client.Close())
	}
	return errors.Join(errs...)
}

// serverFacts lists the facts of every server in any topology. LOCK stands for the name of a lock.
func serverFacts() map[string]string {
	return map[string]string{
		chaos.FactServes:    "the server answers PING",
		chaos.FactRole:      "first word of the server's ROLE: master or slave",
		"clock":             "the server's wall clock by TIME, RFC 3339 with microseconds, UTC",
		"run-id":            "the server's run_id, which differs after each start",
		chaos.FactSyncing:   "an fsync of the append-only file waits or is under way (aof_pending_bio_fsync)",
		"delayed-fsyncs":    "how often the server delayed a write because an fsync took too long (aof_delayed_fsync)",
		chaos.FactLastWrite: "the value of the last of these writes",
		"fresh-second":      "true when this second's fsync is done and the next is at least half a second away; the query waits for it",
		chaos.FactWrites:    "the server accepts a write at a key that no lock has; the query itself writes",
		holderFact + "LOCK": `the value at the key of lock LOCK on this server, or "none"`,
		history.FactTakes + "LOCK": `"true" if the server takes a write beside the key of lock LOCK, in the same slot, else the word with which it ` +
			"refuses, such as READONLY, NOREPLICAS or CLUSTERDOWN; asking writes",
	}
}

// ask answers the facts of serverFacts.
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
		return m.client.Get(ctx, m.keys.Ready()).Result()
	case "fresh-second":
		_, err := m.freshSecond(ctx)
		return strconv.FormatBool(err == nil), err
	case chaos.FactWrites:
		err := m.write(ctx, m.client, m.keys.Ready())
		return strconv.FormatBool(err == nil), err
	case "run-id":
		section, err := m.info(ctx, "server")
		return section["run_id"], err
	}
	return "", fmt.Errorf("redis has no fact %q", fact)
}

func clockText(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000000Z07:00") }

func (m member) holder(ctx context.Context, name string) (string, error) {
	var q question
	_, _ = m.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		q = ask(ctx, p, m.keys.Anywhere(name))
		return nil
	})
	v, err := q.values()
	return holderIn(v), err
}

// takes writes a key in the slot of a lock's keys.
func (m member) takes(ctx context.Context, name string) (string, error) {
	err := m.client.Set(ctx, m.keys.Probe(name), m.name, time.Minute).Err()
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

// holderIn returns the holder's id among the values of keys.
func holderIn(values []any) string {
	for i, v := range values {
		switch text, ok := v.(string); {
		case ok && i == 0:
			return text
		case ok:
			return access.Printable(text)
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

// number returns a numeric field of one section of INFO.
func (m member) number(ctx context.Context, section, field string) (int64, error) {
	got, err := m.info(ctx, section)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(got[field], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s of %s: %w", field, m.name, err)
	}
	return n, nil
}

// fields parses lines of the form "name:value".
func fields(text string) map[string]string {
	out := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			out[name] = value
		}
	}
	return out
}

// write makes the server take a value at the key and reads it back.
func (m member) write(ctx context.Context, c redis.Cmdable, at string) error {
	want := time.Now().String()
	if err := c.Set(ctx, at, want, time.Minute).Err(); err != nil {
		return fmt.Errorf("%s accepts no write: %w", m.name, err)
	}
	got, err := c.Get(ctx, at).Result()
	if err != nil {
		return fmt.Errorf("%s does not serve a read: %w", m.name, err)
	}
	if got != want {
		return fmt.Errorf("%s returns %q, but %q was written", m.name, got, want)
	}
	return nil
}

// Requests counts the commands that each server has processed. That includes commands within scripts, those that a
// replica gets from its primary, those of Sentinels, and questions such as this one.
func (ms members) Requests(ctx context.Context) map[string]int64 {
	return count(ctx, ms, "total_commands_processed")
}

// Connections counts the connections that each server has accepted, including those of replicas and Sentinels.
func (ms members) Connections(ctx context.Context) map[string]int64 {
	return count(ctx, ms, "total_connections_received")
}

// count asks each server for one of its statistics.
func count(ctx context.Context, ms members, field string) map[string]int64 {
	return topology.CountEach(ms, func(m member) string { return m.name }, func(m member) (int64, error) {
		return m.number(ctx, "stats", field)
	})
}

// freshSecond writes between secondBegins and secondEnds of a second of the server's own clock. The server looks at
// its clock ten times a second, so by secondBegins it has noticed the new second. It must answer by secondSpent, so
// that half a second is left.
const (
	secondBegins = 150 * time.Millisecond
	secondEnds   = 300 * time.Millisecond
	secondSpent  = 500 * time.Millisecond
)

// freshSecond waits for a moment after which nothing reaches the server's disk for half a second, although the server
// says yes, and returns the server's time then. With everysec a server begins at most one fsync in each second of its
// clock. So after a write early in a second, that second's fsync has begun or is over, and the next one begins in the
// next second.
func (m member) freshSecond(ctx context.Context) (time.Time, error) {
	for {
		at, err := m.client.Time(ctx).Result()
		if err != nil {
			return at, err
		}
		if part := time.Duration(at.Nanosecond()); part < secondBegins || part > secondEnds {
			if clock.Sleep(ctx, secondBegins/10) != nil {
				return at, ctx.Err()
			}
			continue
		}
		if err := m.write(ctx, m.client, m.keys.Ready()); err != nil {
			return at, err
		}
		if clock.Sleep(ctx, secondBegins/3) != nil {
			return at, ctx.Err()
		}
		syncing, err := m.ask(ctx, chaos.FactSyncing)
		if err != nil {
			return at, err
		}
		now, err := m.client.Time(ctx).Result()
		if err != nil {
			return at, err
		}
		if syncing == "false" && now.Unix() == at.Unix() && time.Duration(now.Nanosecond()) < secondSpent {
			return now, nil
		}
	}
}

// observeTimeout bounds one command of the harness to a server. It is independent of the clients' node_timeout,
// because the harness is not in a hurry.
const observeTimeout = time.Second
