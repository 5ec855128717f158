package servers

import (
	"context"
	"fmt"
	"net"
	"strconv"

	"github.com/lockquake/lockquake/backends/redis/access"
)

// sentinelSetup brings the servers and the Sentinels together.
type sentinelSetup struct {
	nodes  sentinelNodes
	params SentinelParams
	formed bool // ready has seen it whole once: from then on only the Sentinels decide who follows whom
}

// pace sets the Sentinels' periods with SENTINEL DEBUG (Redis 7 and later). With the built-in periods of a second and
// more, a failover takes ten seconds, and an old primary that comes back takes writes for as long. The periods are
// not in a Sentinel's file: a restarted Sentinel has the built-in ones until ready sets them again.
var pace = []struct {
	name string
	ms   int
}{{"ping-period", 100}, {"info-period", 200}, {"ask-period", 100}, {"publish-period", 200}}

func (s *sentinelSetup) setPace(ctx context.Context) error {
	args := []any{"SENTINEL", "DEBUG"}
	for _, t := range pace {
		args = append(args, t.name, t.ms)
	}
	for _, m := range s.nodes.sentinels {
		if err := m.client.Do(ctx, args...).Err(); err != nil {
			return fmt.Errorf("set the periods of %s: %w", m.name, err)
		}
	}
	return nil
}

// form makes the first server the primary of the others and makes every Sentinel watch it. It may be repeated after
// an interrupted call.
func (s *sentinelSetup) form(ctx context.Context) error {
	primary := ""
	known := map[string]map[string]string{}
	for _, m := range s.nodes.sentinels {
		if v, err := m.primary(ctx); err == nil {
			known[m.name], primary = v, net.JoinHostPort(v["ip"], v["port"])
		}
	}
	if primary == "" {
		primary = s.nodes.servers[0].address
		for _, m := range s.nodes.servers[1:] {
			host, port := splitAddress(primary)
			if err := m.client.ReplicaOf(ctx, host, port).Err(); err != nil {
				return fmt.Errorf("make %s a replica: %w", m.name, err)
			}
		}
	}
	for _, m := range s.nodes.sentinels {
		if err := s.monitor(ctx, m, primary, known[m.name]); err != nil {
			return err
		}
	}
	return nil
}

// monitor makes one Sentinel watch the primary, unless it does already, and corrects its timers.
func (s *sentinelSetup) monitor(ctx context.Context, m member, primary string, known map[string]string) error {
	if known == nil {
		host, port := splitAddress(primary)
		if err := m.client.Do(ctx, "SENTINEL", "MONITOR", access.Monitored, host, port,
			sentinelQuorum).Err(); err != nil {
			return fmt.Errorf("have %s watch %s: %w", m.name, primary, err)
		}
		if m.password != "" {
			if err := m.client.Do(ctx, "SENTINEL", "SET", access.Monitored, "auth-pass", m.password).Err(); err != nil {
				_ = m.client.Do(ctx, "SENTINEL", "REMOVE", access.Monitored).Err() // the next call starts anew
				return fmt.Errorf("tell %s the password of %s: %w", m.name, primary, err)
			}
		}
	}
	for name, want := range map[string]int64{
		"down-after-milliseconds": s.params.DownAfter.Milliseconds(),
		"failover-timeout":        s.params.FailoverTimeout.Milliseconds(),
	} {
		if known[name] == strconv.FormatInt(want, 10) {
			continue
		}
		if err := m.client.Do(ctx, "SENTINEL", "SET", access.Monitored, name, want).Err(); err != nil {
			return fmt.Errorf("set %s of %s: %w", name, m.name, err)
		}
	}
	return nil
}

// agreed returns the primary if all Sentinels agree that all is well.
func (s *sentinelSetup) agreed(ctx context.Context) (member, error) {
	var first, name string
	for _, m := range s.nodes.sentinels {
		v, err := m.primary(ctx)
		if err != nil {
			return member{}, err
		}
		address := net.JoinHostPort(v["ip"], v["port"])
		if first == "" {
			first, name = address, m.name
		}
		for _, c := range []struct{ what, got, want string }{
			{"names the primary", address, first},
			{"gives it the flags", v["flags"], "master"},
			{"counts its replicas as", v["num-slaves"], strconv.Itoa(sentinelServers - 1)},
			{"counts other Sentinels as", v["num-other-sentinels"], strconv.Itoa(sentinelWatches - 1)},
		} {
			if c.got != c.want {
				return member{}, fmt.Errorf("%s %s %q; expected %q (%s names %s)", m.name, c.what, c.got, c.want,
					name, s.nodes.servers.at(first))
			}
		}
		if err := s.content(ctx, m, first); err != nil {
			return member{}, err
		}
	}
	return s.nodes.servers.find(s.nodes.servers.at(first))
}

// content returns an error unless a Sentinel sees both replicas follow the primary, and has its quorum.
func (s *sentinelSetup) content(ctx context.Context, m member, primary string) error {
	healthy, err := s.nodes.followers(ctx, m)
	if err != nil {
		return err
	}
	n := 0
	for _, follows := range healthy {
		if follows == primary {
			n++
		}
	}
	if n != sentinelServers-1 {
		return fmt.Errorf("%s sees %d of %d replicas follow %s with their links up", m.name, n, sentinelServers-1,
			s.nodes.servers.at(primary))
	}
	if err := m.client.Do(ctx, "SENTINEL", "CKQUORUM", access.Monitored).Err(); err != nil {
		return fmt.Errorf("%s: %w", m.name, err)
	}
	return nil
}

// ready returns nil if all of this holds:
//   - all six nodes answer
//   - every Sentinel names the same primary, sees no other state than master in it, and has its quorum
//   - every Sentinel sees both replicas follow the primary with their links up, and both other Sentinels
//   - the primary takes a write, and both replicas acknowledge it
//
// Until that has held once, it also sets up the replication and the Sentinels.
func (s *sentinelSetup) ready(ctx context.Context) error {
	for _, list := range []members{s.nodes.servers, s.nodes.sentinels} {
		for _, m := range list {
			if err := m.client.Ping(ctx).Err(); err != nil {
				return fmt.Errorf("%s does not answer: %w", m.name, err)
			}
		}
	}
	if err := s.setPace(ctx); err != nil {
		return err
	}
	if !s.formed {
		if err := s.form(ctx); err != nil {
			return err
		}
	}
	primary, err := s.agreed(ctx)
	if err != nil {
		return err
	}
	if err := primary.replicates(ctx, primary.keys.Ready(), sentinelServers-1); err != nil {
		return err
	}
	s.formed = true
	return nil
}
