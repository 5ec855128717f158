package redis

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/chaos"
)

// What is asked with the name of a lock.
const (
	primaryFact = "primary:"
	roleFact    = chaos.FactRole + ":"
)

// clusterService answers for the running nodes.
type clusterService struct {
	params  ClusterParams
	common  backends.Common
	servers members
	buses   map[string]string // addresses of the bus by node
	formed  bool              // Ready has seen it whole once: from then on the cluster alone says who follows whom
}

// Facts lists what can be asked.
func (s *clusterService) Facts() map[string]string {
	out := serverFacts()
	maps.Copy(out, replicationFacts())
	out[primaryFact+"LOCK"] = `name of the node that this one takes for the primary of lock LOCK's slot, or "none"`
	out[roleFact+"LOCK"] = `this node's role for lock LOCK by its own account: master or slave where it has the lock's slot, else "none"`
	out["state"] = "the cluster_state of CLUSTER INFO in the node's eyes: ok or fail; in state fail it refuses every key"
	out["epoch"] = "the node's current epoch, which grows with each election"
	out["flags"] = "the node's flags by its own account, such as master or slave"
	out["failing"] = `names of the nodes that this one suspects (fail?) or holds to have failed (fail), or "none"`
	return out
}

// Ask asks one node for one fact.
func (s *clusterService) Ask(ctx context.Context, node, fact string) (string, error) {
	m, err := s.servers.find(node)
	if err != nil {
		return "", err
	}
	if name, ok := strings.CutPrefix(fact, holderFact); ok {
		return s.holder(ctx, m, name)
	}
	if name, ok := strings.CutPrefix(fact, primaryFact); ok {
		v, slot, err := viewOfSlot(ctx, m, name)
		return s.nameOf(v.owner(slot)), err
	}
	if name, ok := strings.CutPrefix(fact, roleFact); ok {
		v, slot, err := viewOfSlot(ctx, m, name)
		return v.roleFor(slot), err
	}
	if _, ok := replicationFacts()[fact]; ok {
		return s.servers.askReplication(ctx, m, fact)
	}
	switch fact {
	case "state", "epoch":
		v, err := m.clusterInfo(ctx)
		return map[string]string{"state": v["cluster_state"], "epoch": v["cluster_current_epoch"]}[fact], err
	case "flags", "failing":
		v, err := m.view(ctx)
		if err != nil {
			return "", err
		}
		if fact == "flags" {
			return strings.Join(v.self().flags, ","), nil
		}
		return s.failing(v), nil
	}
	return m.ask(ctx, fact)
}

// holder reads the key on the very node that was asked: READONLY lets a replica answer. A node without the key's slot answers MOVED:
// the key is certainly not there.
func (s *clusterService) holder(ctx context.Context, m member, name string) (string, error) {
	var get *redis.SliceCmd
	_, _ = m.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.ReadOnly(ctx) // the connection stays so, which changes nothing for a primary
		get = p.MGet(ctx, keys(name)...)
		return nil
	})
	v, err := get.Result()
	if redis.HasErrorPrefix(err, "MOVED") {
		return "none", nil
	}
	return holderIn(v), err
}

// nameOf is the node's name among ours.
func (s *clusterService) nameOf(p *peer) string {
	if p == nil {
		return "none"
	}
	return s.servers.at(p.address)
}

func (s *clusterService) failing(v view) string {
	var out []string
	for _, p := range v {
		if slices.Contains(p.flags, "fail") || slices.Contains(p.flags, "fail?") {
			out = append(out, s.servers.at(p.address))
		}
	}
	if len(out) == 0 {
		return "none"
	}
	slices.Sort(out)
	return strings.Join(out, ",")
}

// clusterInfo is CLUSTER INFO.
func (m member) clusterInfo(ctx context.Context) (map[string]string, error) {
	text, err := m.client.ClusterInfo(ctx).Result()
	if err != nil {
		return nil, fmt.Errorf("CLUSTER INFO of %s: %w", m.name, err)
	}
	return fields(text), nil
}

// Describe returns versions, and every timer and knob.
func (s *clusterService) Describe(ctx context.Context) map[string]string {
	out := s.params.LockParams.describe(s.common)
	out["redis.topology"] = fmt.Sprintf("cluster of %d primaries with a replica each", clusterPrimaries)
	out["redis.version"] = s.servers.version(ctx)
	out["redis.persistence"] = s.params.Persistence
	out["redis.node-timeout"] = s.params.NodeTimeout.String()
	out["client.redirects"] = strconv.Itoa(redirects)
	out["client.map-interval"] = mapInterval.String()
	return out
}

// Close frees the connections.
func (s *clusterService) Close() error { return s.servers.close() }
