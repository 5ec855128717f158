package servers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/lockquake/lockquake/backends/redis/access"
	"github.com/lockquake/lockquake/backends/topology"
	"github.com/lockquake/lockquake/chaos"
)

// Reset gives the slots back to the servers that had them at the start, if replicas were promoted, and clears all
// servers. The epochs keep growing.
func (s *clusterService) Reset(ctx context.Context) ([]string, error) {
	var evidence []string
	for i, m := range s.servers[:clusterPrimaries] {
		back, err := takeSlotsBack(ctx, m, i*slots/clusterPrimaries)
		if err != nil {
			return nil, err
		}
		if back {
			evidence = append(evidence, m.name+" took its slots back by CLUSTER FAILOVER")
		}
	}
	if len(evidence) > 0 {
		if err := topology.Until(ctx, resetPatience, s.Ready); err != nil {
			return nil, fmt.Errorf("with their slots given back, the nodes do not serve: %w", err)
		}
	}
	cleared, err := s.servers.Reset(ctx)
	return append(evidence, cleared...), err
}

// takeSlotsBack makes the node primary again for the slots that it had at the start, unless it is; slot is one of
// them. The promoted replica hands them over without loss, and follows it again.
func takeSlotsBack(ctx context.Context, m member, slot int) (back bool, err error) {
	v, err := viewOf(ctx, m)
	if err != nil || v.roleFor(slot) == "master" {
		return false, err
	}
	// refused until it is connected to the primary
	ask := func(ctx context.Context) error { return m.client.ClusterFailover(ctx).Err() }
	if err := topology.Until(ctx, resetPatience, ask); err != nil {
		return false, fmt.Errorf("have %s take its slots back: %w", m.name, err)
	}
	return true, topology.Until(ctx, resetPatience, func(ctx context.Context) error {
		v, err := viewOf(ctx, m)
		if err == nil && v.roleFor(slot) != "master" {
			err = fmt.Errorf("%s should have taken its slots back, but is not the primary of slot %d", m.name, slot)
		}
		return err
	})
}

// Settings returns every server's role, slots and configuration. They differ from the start if a replica was promoted
// or took over the slots.
func (s *clusterService) Settings(ctx context.Context) (map[string]string, error) {
	out, err := s.servers.Settings(ctx)
	if err != nil {
		return nil, err
	}
	for _, m := range s.servers {
		v, err := viewOf(ctx, m)
		if err != nil {
			return nil, err
		}
		self := v.self()
		out[m.name+" slots"], out[m.name+" follows"] = fmt.Sprint(self.slots), v.node(self.primary).nameAmong(s.servers)
	}
	return out, nil
}

// Reset brings the nodes together again as at the start. The Sentinels forget the primary and all failovers. The
// first server becomes the primary again, and the others copy it once it is empty.
func (s *sentinelService) Reset(ctx context.Context) ([]string, error) {
	for _, m := range s.nodes.sentinels {
		if err := m.client.Do(ctx, "SENTINEL", "REMOVE", access.Monitored).Err(); err != nil &&
			!strings.Contains(err.Error(), "No such master") {
			return nil, fmt.Errorf("have %s forget the primary: %w", m.name, err)
		}
	}
	for _, m := range s.nodes.servers {
		if err := m.client.ReplicaOf(ctx, "NO", "ONE").Err(); err != nil {
			return nil, fmt.Errorf("make %s a primary: %w", m.name, err)
		}
	}
	evidence, err := s.nodes.servers.Reset(ctx)
	if err != nil {
		return nil, err
	}
	s.setup.formed = false
	if err := topology.Until(ctx, resetPatience, s.Ready); err != nil {
		return nil, fmt.Errorf("after the cluster was rebuilt, the nodes do not serve: %w", err)
	}
	for _, m := range s.nodes.sentinels {
		v, err := m.primary(ctx)
		if err != nil {
			return nil, err
		}
		if v["config-epoch"] != "0" || v["flags"] != "master" {
			return nil, fmt.Errorf("%s watches the primary in epoch %s with the flags %s, unlike at the start",
				m.name, v["config-epoch"], v["flags"])
		}
		evidence = append(evidence, fmt.Sprintf("%s watches %s again: epoch 0, no failover, %s replicas, %s other Sentinels",
			m.name, s.nodes.servers.at(v["ip"]+":"+v["port"]), v["num-slaves"], v["num-other-sentinels"]))
	}
	return evidence, nil
}

// Settings returns the servers' roles and configuration, and the Sentinels' timers.
func (s *sentinelService) Settings(ctx context.Context) (map[string]string, error) {
	out, err := s.nodes.servers.Settings(ctx)
	if err != nil {
		return nil, err
	}
	for _, m := range s.nodes.sentinels {
		v, err := m.primary(ctx)
		if err != nil {
			return nil, err
		}
		for _, name := range []string{
			"ip", "port", "quorum", "down-after-milliseconds", "failover-timeout",
			"parallel-syncs",
		} {
			out[m.name+" "+name] = v[name]
		}
	}
	return out, nil
}

// Settings returns the roles and the configuration of all servers.
func (ms members) Settings(ctx context.Context) (map[string]string, error) {
	out := map[string]string{}
	for _, m := range ms {
		role, err := m.ask(ctx, chaos.FactRole)
		if err != nil {
			return nil, err
		}
		out[m.name+" role"] = role
		config, err := m.client.ConfigGet(ctx, "*").Result()
		if err != nil {
			return nil, fmt.Errorf("CONFIG GET of %s: %w", m.name, err)
		}
		for name, value := range config {
			out[m.name+" config "+name] = value
		}
	}
	return out, nil
}

// Reset clears all servers in parallel, and checks that they are empty.
func (ms members) Reset(ctx context.Context) ([]string, error) {
	removed := make([]int, len(ms))
	g, gctx := errgroup.WithContext(ctx)
	for i, m := range ms {
		g.Go(func() (err error) { removed[i], err = m.clear(gctx); return err })
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	evidence := make([]string, len(ms))
	g, gctx = errgroup.WithContext(ctx)
	for i, m := range ms {
		g.Go(func() error {
			if err := topology.Until(gctx, resetPatience, m.empty); err != nil {
				return err
			}
			evidence[i] = fmt.Sprintf("%s: DBSIZE is 0 after %d keys of lock users were deleted, and no client is connected", m.name, removed[i])
			saved, err := m.saveEmpty(gctx)
			if saved {
				evidence[i] += "; its RDB file was rewritten"
			}
			return err
		})
	}
	return evidence, g.Wait()
}

// ours reports whether a key is one that locks or the harness create.
func ours(k string) bool { return strings.HasPrefix(strings.TrimPrefix(k, "{"), access.Own+":") }

// clear deletes the keys of lock users on a primary. On every server it also removes their scripts and connections,
// and resets the counters. Other keys are kept. It returns how many keys it deleted.
func (m member) clear(ctx context.Context) (int, error) {
	role, err := m.ask(ctx, chaos.FactRole)
	if err != nil {
		return 0, err
	}
	deleted := 0
	if role == "master" {
		found, err := m.client.Keys(ctx, "*").Result()
		if err != nil {
			return 0, fmt.Errorf("KEYS of %s: %w", m.name, err)
		}
		for _, k := range slices.DeleteFunc(found, func(k string) bool { return !ours(k) }) {
			if err := m.client.Del(ctx, k).Err(); err != nil {
				return 0, fmt.Errorf("delete %s of %s: %w", k, m.name, err)
			}
			deleted++
		}
	}
	strangers, err := m.strangers(ctx)
	for _, id := range strangers {
		// It may be gone already, which is fine; empty checks.
		_ = m.client.Do(ctx, "CLIENT", "KILL", "ID", id).Err()
	}
	return deleted, errors.Join(err, m.client.ScriptFlush(ctx).Err(), m.client.ConfigResetStat(ctx).Err())
}

// strangers returns the ids of the connections to a server that are neither the harness's own nor another server's.
func (m member) strangers(ctx context.Context) ([]string, error) {
	var out []string
	for _, kind := range []string{"normal", "pubsub"} {
		text, err := m.client.Do(ctx, "CLIENT", "LIST", "TYPE", kind).Text()
		if err != nil {
			return nil, fmt.Errorf("CLIENT LIST of %s: %w", m.name, err)
		}
		for line := range strings.Lines(text) {
			words := strings.Fields(line)
			own := slices.Contains(words, "name="+observerName) || strings.Contains(line, " name=sentinel-")
			if id, ok := strings.CutPrefix(line, "id="); ok && !own {
				id, _, _ = strings.Cut(id, " ")
				out = append(out, id)
			}
		}
	}
	return out, nil
}

// empty returns an error while a server has any key, or a client.
func (m member) empty(ctx context.Context) error {
	n, err := m.client.DBSize(ctx).Result()
	if err != nil {
		return fmt.Errorf("DBSIZE of %s: %w", m.name, err)
	}
	if n > 0 {
		one, err := m.client.RandomKey(ctx).Result()
		return errors.Join(fmt.Errorf("%s has %d keys, %q among them", m.name, n, one), err)
	}
	strangers, err := m.strangers(ctx)
	if err == nil && len(strangers) > 0 {
		err = fmt.Errorf("%d clients are connected to %s", len(strangers), m.name)
	}
	return err
}

// saveEmpty rewrites the RDB file of an empty server that has save points: an old one would bring deleted keys back
// after a crash.
func (m member) saveEmpty(ctx context.Context) (saved bool, err error) {
	config, err := m.client.ConfigGet(ctx, "save").Result()
	if err != nil {
		return false, fmt.Errorf("CONFIG GET of %s: %w", m.name, err)
	}
	if config["save"] == "" {
		return false, nil
	}
	// refused while a save is running
	err = topology.Until(ctx, resetPatience, func(ctx context.Context) error { return m.client.Save(ctx).Err() })
	if err != nil {
		return false, fmt.Errorf("SAVE on %s: %w", m.name, err)
	}
	return true, nil
}

// resetPatience is how long to wait for the effect of a reset. Replicas receive a deletion within a moment. Sentinels
// find each other within some 400 ms, on a busy machine within seconds. Servers that take longer are restarted.
const resetPatience = 10 * time.Second
