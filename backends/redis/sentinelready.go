package redis

import (
	"context"
	"fmt"
	"net"
	"strconv"
)

// Ready returns nil when all six nodes answer, every Sentinel names the same primary, calls it nothing but a master, sees both replicas
// follow it with their links up and both other Sentinels, and has its quorum, and when the primary takes a write. Until
// that was so for the first time it also says who follows whom and what is watched.
func (s *sentinelService) Ready(ctx context.Context) error {
	for _, list := range []members{s.servers, s.sentinels} {
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
	if err := primary.write(ctx, readyKey); err != nil {
		return err
	}
	s.formed = true
	return nil
}

func (s *sentinelService) setPace(ctx context.Context) error {
	args := []any{"SENTINEL", "DEBUG"}
	for _, t := range pace {
		args = append(args, t.name, t.ms)
	}
	for _, m := range s.sentinels {
		if err := m.client.Do(ctx, args...).Err(); err != nil {
			return fmt.Errorf("set the periods of %s: %w", m.name, err)
		}
	}
	return nil
}

// form makes the first server the primary of the others and has every Sentinel watch it. It may be called again where an
// earlier call was cut short.
func (s *sentinelService) form(ctx context.Context) error {
	primary := ""
	known := map[string]map[string]string{}
	for _, m := range s.sentinels {
		if v, err := m.primary(ctx); err == nil {
			known[m.name], primary = v, net.JoinHostPort(v["ip"], v["port"])
		}
	}
	if primary == "" {
		primary = s.servers[0].address
		for _, m := range s.servers[1:] {
			host, port := splitAddress(primary)
			if err := m.client.ReplicaOf(ctx, host, port).Err(); err != nil {
				return fmt.Errorf("make %s a replica: %w", m.name, err)
			}
		}
	}
	for _, m := range s.sentinels {
		if err := s.monitor(ctx, m, primary, known[m.name]); err != nil {
			return err
		}
	}
	return nil
}

// monitor has one Sentinel watch the primary, unless it does already, and sets the timers that are not as they should be.
func (s *sentinelService) monitor(ctx context.Context, m member, primary string, known map[string]string) error {
	if known == nil {
		host, port := splitAddress(primary)
		if err := m.client.Do(ctx, "SENTINEL", "MONITOR", monitored, host, port, sentinelQuorum).Err(); err != nil {
			return fmt.Errorf("have %s watch %s: %w", m.name, primary, err)
		}
	}
	for name, want := range map[string]int64{
		"down-after-milliseconds": s.params.DownAfter.Milliseconds(), "failover-timeout": s.params.FailoverTimeout.Milliseconds(),
	} {
		if known[name] == strconv.FormatInt(want, 10) {
			continue
		}
		if err := m.client.Do(ctx, "SENTINEL", "SET", monitored, name, want).Err(); err != nil {
			return fmt.Errorf("set %s of %s: %w", name, m.name, err)
		}
	}
	return nil
}

// agreed returns the primary when all Sentinels agree that all is well.
func (s *sentinelService) agreed(ctx context.Context) (member, error) {
	var first, name string
	for _, m := range s.sentinels {
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
				return member{}, fmt.Errorf("%s %s %q; awaited is %q (%s names %s)", m.name, c.what, c.got, c.want, name, s.servers.at(first))
			}
		}
		if err := s.content(ctx, m, first); err != nil {
			return member{}, err
		}
	}
	return s.servers.find(s.servers.at(first))
}

// content tells whether a Sentinel sees both replicas follow the primary, and has its quorum.
func (s *sentinelService) content(ctx context.Context, m member, primary string) error {
	healthy, err := s.followers(ctx, m)
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
		return fmt.Errorf("%s sees %d of %d replicas follow %s with their links up", m.name, n, sentinelServers-1, s.servers.at(primary))
	}
	if err := m.client.Do(ctx, "SENTINEL", "CKQUORUM", monitored).Err(); err != nil {
		return fmt.Errorf("%s: %w", m.name, err)
	}
	return nil
}
