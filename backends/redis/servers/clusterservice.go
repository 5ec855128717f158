package servers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/lockquake/lockquake/backends/redis/access"
	"github.com/lockquake/lockquake/chaos"
)

// Prefixes of the facts that name a lock.
const (
	primaryFact = "primary:"
	roleFact    = chaos.FactRole + ":"
)

// clusterService answers for the running nodes.
type clusterService struct {
	sharded sharded
	servers members
	guest   clusterGuest
	setup   clusterSetup
}

// Facts lists the facts.
func (s *clusterService) Facts() map[string]string {
	out := serverFacts()
	maps.Copy(out, replicationFacts())
	out[primaryFact+"LOCK"] = `name of the primary of lock LOCK's slot according to this node, or "none"`
	out[roleFact+"LOCK"] = `this node's role for lock LOCK, according to itself: master or slave if it has the lock's slot, else "none"`
	out["state"] = "the cluster_state of CLUSTER INFO on this node: ok or fail; in state fail it refuses every key"
	out["epoch"] = "the node's current epoch, which grows with each election"
	out["flags"] = "the node's flags according to itself, such as master or slave"
	out["failing"] = `names of the nodes that this one suspects (fail?) or considers failed (fail), or "none"`
	return out
}

// Ask asks one node for one fact.
func (s *clusterService) Ask(ctx context.Context, node, fact string) (string, error) {
	m, err := s.servers.find(node)
	if err != nil {
		return "", err
	}
	if name, ok := strings.CutPrefix(fact, holderFact); ok {
		return slotHolder(ctx, m, name)
	}
	if name, ok := strings.CutPrefix(fact, primaryFact); ok {
		v, slot, err := viewOfSlot(ctx, m, name)
		return v.owner(slot).nameAmong(s.servers), err
	}
	if name, ok := strings.CutPrefix(fact, roleFact); ok {
		v, slot, err := viewOfSlot(ctx, m, name)
		return v.roleFor(slot), err
	}
	if _, ok := replicationFacts()[fact]; ok {
		return askReplication(ctx, s.servers, m, fact)
	}
	switch fact {
	case chaos.FactWrites:
		err := writeOwn(ctx, m)
		return strconv.FormatBool(err == nil), err
	case "state", "epoch":
		v, err := clusterInfo(ctx, m)
		return map[string]string{"state": v["cluster_state"], "epoch": v["cluster_current_epoch"]}[fact], err
	case "flags", "failing":
		v, err := viewOf(ctx, m)
		if err != nil {
			return "", err
		}
		if fact == "flags" {
			return strings.Join(v.self().flags, ","), nil
		}
		return v.failing(s.servers), nil
	}
	return m.ask(ctx, fact)
}

// writeOwn makes a primary take a write at a key in one of its own slots.
func writeOwn(ctx context.Context, m member) error {
	v, err := viewOf(ctx, m)
	if err != nil {
		return err
	}
	for n := range access.ReadyKeys {
		at := m.keys.ReadyAt(n)
		slot, err := m.client.ClusterKeySlot(ctx, at).Result()
		if err != nil {
			return fmt.Errorf("CLUSTER KEYSLOT of %s: %w", m.name, err)
		}
		if o := v.owner(int(slot)); o != nil && o.id == v.self().id {
			return m.write(ctx, m.client, at)
		}
	}
	return fmt.Errorf("%s is the primary of no slot", m.name)
}

// Leads returns the locks whose slots belong to the node as their primary.
func (s *clusterService) Leads(ctx context.Context, node string, locks []string) ([]string, error) {
	m, err := s.servers.find(node)
	if err != nil {
		return nil, err
	}
	asked := make([]*redis.IntCmd, len(locks))
	_, err = m.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, name := range locks {
			asked[i] = p.ClusterKeySlot(ctx, m.keys.Key(name))
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("CLUSTER KEYSLOT of %s: %w", m.name, err)
	}
	v, err := viewOf(ctx, m)
	var led []string
	for i, name := range locks {
		if v.roleFor(int(asked[i].Val())) == "master" {
			led = append(led, name)
		}
	}
	return led, err
}

// Describe returns versions, and every timer and setting.
func (s *clusterService) Describe(ctx context.Context) map[string]string {
	out := s.sharded.locks.describe(s.sharded.params.LockParams, s.sharded.common)
	out["redis.topology"] = fmt.Sprintf("cluster of %d primaries with a replica each", clusterPrimaries)
	if s.sharded.common.Attached != nil {
		out["redis.topology"] = fmt.Sprintf("cluster of %d primaries", s.guest.primaries)
	}
	out["redis.version"] = s.servers.version(ctx)
	out["redis.persistence"] = s.sharded.params.Persistence
	out[writeRuleKey] = s.sharded.params.WriteRule.describe()
	out["redis.node-timeout"] = s.sharded.params.NodeTimeout.String()
	out["client.redirects"] = strconv.Itoa(access.Redirects)
	out["client.map-interval"] = access.MapInterval.String()
	s.sharded.common.Drop(out, "redis.persistence", writeRuleKey, "redis.node-timeout")
	return out
}

// Keepers returns all servers.
func (s *clusterService) Keepers() []string { return s.servers.Keepers() }

// Requests counts the commands that each server has processed.
func (s *clusterService) Requests(ctx context.Context) map[string]int64 {
	return s.servers.Requests(ctx)
}

// Connections counts the connections that each server has accepted.
func (s *clusterService) Connections(ctx context.Context) map[string]int64 {
	return s.servers.Connections(ctx)
}

// Ready brings the nodes together. In an external cluster it only makes every primary take a write.
func (s *clusterService) Ready(ctx context.Context) error {
	if s.sharded.common.Attached != nil {
		return s.guest.ready(ctx)
	}
	return s.setup.ready(ctx)
}

// Vacant looks for keys on every primary.
func (s *clusterService) Vacant(ctx context.Context) (string, error) {
	v, _, err := s.guest.attached(ctx)
	if err != nil {
		return "", err
	}
	return v.Vacant(ctx)
}

// Remove deletes the run's keys on every primary; the replicas follow.
func (s *clusterService) Remove(ctx context.Context, locks []string) (string, error) {
	v, _, err := s.guest.attached(ctx)
	if err != nil {
		return "", err
	}
	return v.Remove(ctx, locks)
}

// Announced returns the addresses of servers that the cluster has besides the endpoints: clients are redirected
// there.
func (s *clusterService) Announced() []string { return s.guest.announced }

// Close frees the connections.
func (s *clusterService) Close() error {
	return errors.Join(s.servers.Close(), s.guest.close())
}
