package redis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockquake/lockquake/chaos"
)

// readyKey is written by Ready; no lock has a name like it.
const readyKey = "lockquake:ready"

// holderFact asks for the value at the key of a lock: the random id of its holder.
const holderFact = "holder:"

// member is one server as the harness sees it.
type member struct {
	name   string
	client *redis.Client
}

// newMember makes a client that connects through dial, the harness's own way to the node.
func newMember(name string, dial func(ctx context.Context, port string) (net.Conn, error), timeout time.Duration) member {
	o := options(timeout).Simple()
	o.Dialer = func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx, Port) }
	return member{name: name, client: redis.NewClient(o)}
}

// service answers for the running server.
type service struct {
	params  Params
	ttl     time.Duration
	members []member
}

// Facts lists what can be asked. LOCK stands for the name of a lock.
func (s *service) Facts() map[string]string {
	return map[string]string{
		chaos.FactServes:    "the server answers PING",
		"role":              "first word of the server's ROLE: master or slave",
		"clock":             "the server's wall clock by TIME, RFC 3339 with microseconds, UTC",
		"run-id":            "the server's run_id: another after each start",
		holderFact + "LOCK": `the value at the key of lock LOCK, or "none"`,
	}
}

// Ask asks one server for one fact.
func (s *service) Ask(ctx context.Context, node, fact string) (string, error) {
	m, err := s.member(node)
	if err != nil {
		return "", err
	}
	if name, ok := strings.CutPrefix(fact, holderFact); ok {
		return holder(ctx, m.client, name)
	}
	switch fact {
	case chaos.FactServes:
		if err := m.client.Ping(ctx).Err(); err != nil {
			return "false", nil //nolint:nilerr // not answering is the answer
		}
		return "true", nil
	case "role":
		v, err := m.client.Do(ctx, "ROLE").Slice()
		if err != nil || len(v) == 0 {
			return "", fmt.Errorf("ROLE of %s: %w", node, err)
		}
		return fmt.Sprint(v[0]), nil
	case "clock":
		t, err := m.client.Time(ctx).Result()
		if err != nil {
			return "", fmt.Errorf("TIME of %s: %w", node, err)
		}
		return t.UTC().Format("2006-01-02T15:04:05.000000Z07:00"), nil
	case "run-id":
		return info(ctx, m.client, "server", "run_id")
	}
	return "", fmt.Errorf("redis has no fact %q", fact)
}

func holder(ctx context.Context, c *redis.Client, name string) (string, error) {
	v, err := c.Get(ctx, key(name)).Result()
	if errors.Is(err, redis.Nil) {
		return "none", nil
	}
	return v, err
}

// info returns one field of INFO.
func info(ctx context.Context, c *redis.Client, section, field string) (string, error) {
	text, err := c.Info(ctx, section).Result()
	if err != nil {
		return "", fmt.Errorf("INFO %s: %w", section, err)
	}
	for line := range strings.Lines(text) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), field+":"); ok {
			return v, nil
		}
	}
	return "", fmt.Errorf("INFO %s has no %s", section, field)
}

func (s *service) member(node string) (member, error) {
	for _, m := range s.members {
		if m.name == node {
			return m, nil
		}
	}
	return member{}, fmt.Errorf("redis has no node %q", node)
}

// Ready writes a value to every server and reads it back.
func (s *service) Ready(ctx context.Context) error {
	for _, m := range s.members {
		want := time.Now().String()
		if err := m.client.Set(ctx, readyKey, want, time.Minute).Err(); err != nil {
			return fmt.Errorf("%s does not take a write: %w", m.name, err)
		}
		got, err := m.client.Get(ctx, readyKey).Result()
		if err != nil {
			return fmt.Errorf("%s does not serve a read: %w", m.name, err)
		}
		if got != want {
			return fmt.Errorf("%s serves %q where %q was written", m.name, got, want)
		}
	}
	return nil
}

// Describe returns the server's version and what decides about results.
func (s *service) Describe(ctx context.Context) map[string]string {
	out := map[string]string{
		"redis.topology":    "single",
		"redis.persistence": s.params.Persistence,
		"lock.retry":        s.params.Retry.String(),
		"lock.timeout":      s.params.Timeout.String(),
		"lock.ttl":          s.ttl.String(),
	}
	for _, m := range s.members {
		v, err := info(ctx, m.client, "server", "redis_version")
		if err != nil {
			v = "unknown: " + err.Error()
		}
		out["redis.version"] = v
	}
	return out
}

// Close frees the connections.
func (s *service) Close() error {
	var errs []error
	for _, m := range s.members {
		errs = append(errs, m.client.Close())
	}
	return errors.Join(errs...)
}
