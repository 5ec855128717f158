package redis

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/lockquake/lockquake/chaos"
)

// What is asked with the name of a lock.
const (
	primaryFact = "primary:"
	roleFact    = chaos.FactRole + ":"
)

// clusterService answers for the running nodes.
type clusterService struct {
	params ClusterParams
	members
	clusterGuest
	buses  map[string]string // addresses of the bus by node
	formed bool              // Ready has seen it whole once: from then on the cluster alone says who follows whom
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
	m, err := s.members.find(node)
	if err != nil {
		return "", err
	}
	if name, ok := strings.CutPrefix(fact, holderFact); ok {
		return m.slotHolder(ctx, name)
	}
	if name, ok := strings.CutPrefix(fact, primaryFact); ok {
		v, slot, err := viewOfSlot(ctx, m, name)
		return s.members.nameOf(v.owner(slot)), err
	}
	if name, ok := strings.CutPrefix(fact, roleFact); ok {
		v, slot, err := viewOfSlot(ctx, m, name)
		return v.roleFor(slot), err
	}
	if _, ok := replicationFacts()[fact]; ok {
		return s.members.askReplication(ctx, m, fact)
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
		return s.members.failing(v), nil
	}
	return m.ask(ctx, fact)
}

// Leads returns the locks whose slots the node has as their primary.
func (s *clusterService) Leads(ctx context.Context, node string, locks []string) ([]string, error) {
	m, err := s.members.find(node)
	if err != nil {
		return nil, err
	}
	asked := make([]*redis.IntCmd, len(locks))
	_, err = m.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, name := range locks {
			asked[i] = p.ClusterKeySlot(ctx, m.keys.key(name))
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("CLUSTER KEYSLOT of %s: %w", m.name, err)
	}
	v, err := m.view(ctx)
	var led []string
	for i, name := range locks {
		if v.roleFor(int(asked[i].Val())) == "master" {
			led = append(led, name)
		}
	}
	return led, err
}

// slotHolder reads the key on the very node that was asked: READONLY lets a replica answer. A node without the key's slot answers MOVED:
// the key is certainly not there.
func (m member) slotHolder(ctx context.Context, name string) (string, error) {
	var get *redis.SliceCmd
	_, _ = m.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.ReadOnly(ctx) // the connection stays so, which changes nothing for a primary
		get = p.MGet(ctx, m.keys.keys(name)...)
		return nil
	})
	v, err := get.Result()
	if redis.HasErrorPrefix(err, "MOVED") {
		return "none", nil
	}
	return holderIn(v), err
}

// nameOf is a node's name among ours.
func (ms members) nameOf(p *peer) string {
	if p == nil {
		return "none"
	}
	return ms.at(p.address)
}

// failing names those that a node suspects, or holds to have failed.
func (ms members) failing(v view) string {
	var out []string
	for _, p := range v {
		if slices.Contains(p.flags, "fail") || slices.Contains(p.flags, "fail?") {
			out = append(out, ms.at(p.address))
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
	if s.common.Attached != nil {
		out["redis.topology"] = fmt.Sprintf("cluster of %d primaries", s.primaries)
	}
	out["redis.version"] = s.members.version(ctx)
	out["redis.persistence"] = s.params.Persistence
	out[writeRuleKey] = s.params.WriteRule.describe()
	out["redis.node-timeout"] = s.params.NodeTimeout.String()
	out["client.redirects"] = strconv.Itoa(redirects)
	out["client.map-interval"] = mapInterval.String()
	s.common.Drop(out, "redis.persistence", writeRuleKey, "redis.node-timeout")
	return out
}

// Close frees the connections.
func (s *clusterService) Close() error {
	return errors.Join(s.members.Close(), s.clusterGuest.close())
}

// Ready returns nil when every node calls the cluster whole, knows all others, and lists for every slot a primary
// with a replica that has its data. Every primary must also take a write that its replica acknowledges. Until that was
// so for the first time, it also introduces the nodes to each other.
func (s *clusterService) Ready(ctx context.Context) error {
	if s.common.Attached != nil {
		return s.clusterGuest.ready(ctx)
	}
	for _, m := range s.members {
		if err := m.client.Ping(ctx).Err(); err != nil {
			return fmt.Errorf("%s does not answer: %w", m.name, err)
		}
	}
	if !s.formed {
		if err := s.form(ctx); err != nil {
			return err
		}
	}
	var primaries []string
	for _, m := range s.members {
		seen, err := s.whole(ctx, m)
		if err != nil {
			return err
		}
		if primaries == nil {
			primaries = seen
		}
		if !slices.Equal(seen, primaries) {
			return fmt.Errorf("%s takes %s for the primaries, others %s", m.name, strings.Join(seen, ", "), strings.Join(primaries, ", "))
		}
	}
	v, err := s.members[0].view(ctx)
	if err != nil {
		return err
	}
	var takers members
	for _, address := range primaries {
		m, err := s.members.find(s.members.at(address))
		if err != nil {
			return err
		}
		takers = append(takers, m)
	}
	err = s.members.writeAll(ctx, takers, 1, func(slot int) string {
		if p := v.owner(slot); p != nil {
			return p.address
		}
		return ""
	})
	s.formed = err == nil
	return err
}

// form gives the primaries their slots, has all nodes meet and the replicas follow. Each part is left out where it was done; a replica that
// has not heard of its primary yet is an error, and done at the next call.
func (s *clusterService) form(ctx context.Context) error {
	views := make([]view, len(s.members))
	for i, m := range s.members {
		v, err := m.view(ctx)
		if err != nil {
			return err
		}
		if views[i] = v; len(v) > 1 {
			continue // it has met others: what must come before is done
		}
		if err := s.prepare(ctx, i, v); err != nil {
			return err
		}
	}
	for i, m := range s.members {
		for _, other := range s.members[i+1:] {
			if slices.ContainsFunc(views[i], func(p peer) bool { return p.address == other.address }) {
				continue // known, or shaking hands
			}
			if err := s.meet(ctx, m, other); err != nil {
				return err
			}
		}
	}
	for i, m := range s.members[clusterPrimaries:] {
		if err := follow(ctx, m, views[clusterPrimaries+i], views[i].self().id); err != nil {
			return err
		}
	}
	return nil
}

// prepare sets what a node must have before it meets others: an epoch of its own, so that no two primaries quarrel about one,
// and a primary's slots.
func (s *clusterService) prepare(ctx context.Context, i int, v view) error {
	m := s.members[i]
	// Refused where an earlier call that was cut short has set it: the slots tell whether all is done.
	_ = m.client.Do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", i+1).Err()
	if i >= clusterPrimaries || len(v.self().slots) > 0 {
		return nil
	}
	first, end := i*slots/clusterPrimaries, (i+1)*slots/clusterPrimaries
	if err := m.client.ClusterAddSlotsRange(ctx, first, end-1).Err(); err != nil {
		return fmt.Errorf("give %s its slots: %w", m.name, err)
	}
	return nil
}

func (s *clusterService) meet(ctx context.Context, m, other member) error {
	host, port := splitAddress(other.address)
	_, bus := splitAddress(s.buses[other.name])
	if err := m.client.Do(ctx, "CLUSTER", "MEET", host, port, bus).Err(); err != nil {
		return fmt.Errorf("have %s meet %s: %w", m.name, other.name, err)
	}
	return nil
}

// follow makes a node a replica of the primary with that id, unless it is one, or was promoted already on a slow machine.
func follow(ctx context.Context, m member, v view, primary string) error {
	if self := v.self(); self.primary == primary || len(self.slots) > 0 {
		return nil
	}
	if err := m.client.ClusterReplicate(ctx, primary).Err(); err != nil {
		return fmt.Errorf("make %s a replica: %w", m.name, err)
	}
	return nil
}

// whole returns the addresses of the primaries, sorted, in the eyes of one node for which nothing is missing.
func (s *clusterService) whole(ctx context.Context, m member) ([]string, error) {
	info, err := m.clusterInfo(ctx)
	if err != nil {
		return nil, err
	}
	for name, want := range map[string]string{
		"cluster_state": "ok", "cluster_slots_ok": strconv.Itoa(slots), "cluster_known_nodes": strconv.Itoa(clusterServers),
	} {
		if info[name] != want {
			return nil, fmt.Errorf("%s of %s is %s; awaited is %s", name, m.name, info[name], want)
		}
	}
	ranges, primaries, err := m.shards(ctx)
	if err != nil {
		return nil, err
	}
	for _, r := range ranges {
		if len(r.Nodes) < 2 { // a replica that has no data yet is not listed
			return nil, fmt.Errorf("%s knows no replica in sync for slots %d to %d", m.name, r.Start, r.End)
		}
	}
	return primaries, nil
}

// shards returns who has which slots in the eyes of one node, and the addresses of the primaries, sorted. Every slot must have one.
func (m member) shards(ctx context.Context) (ranges []redis.ClusterSlot, primaries []string, err error) {
	ranges, err = m.client.ClusterSlots(ctx).Result() //nolint:staticcheck // CLUSTER SHARDS lists replicas without data too
	if err != nil {
		return nil, nil, fmt.Errorf("CLUSTER SLOTS of %s: %w", m.name, err)
	}
	covered := 0
	for _, r := range ranges {
		if len(r.Nodes) > 0 {
			covered += r.End - r.Start + 1
			primaries = append(primaries, r.Nodes[0].Addr)
		}
	}
	if covered != slots {
		return nil, nil, fmt.Errorf("%s knows primaries for %d of %d slots", m.name, covered, slots)
	}
	slices.Sort(primaries)
	return ranges, slices.Compact(primaries), nil
}

// writeAll has every primary take a write, at keys that happen to be its own, and so many replicas of each acknowledge it. owner is the
// address of the primary of a slot, or "".
func (ms members) writeAll(ctx context.Context, primaries members, replicas int, owner func(slot int) string) error {
	missing := map[string]member{}
	for _, m := range primaries {
		missing[m.address] = m
	}
	asked := ms[0]
	for n := 0; len(missing) > 0; n++ {
		if n == readyKeys {
			return fmt.Errorf("%s takes none of %v for a primary", asked.name, slices.Collect(maps.Keys(missing)))
		}
		at := asked.keys.readyAt(n)
		slot, err := asked.client.ClusterKeySlot(ctx, at).Result()
		if err != nil {
			return fmt.Errorf("CLUSTER KEYSLOT: %w", err)
		}
		address := owner(int(slot))
		if address == "" {
			return fmt.Errorf("slot %d has no primary", slot)
		}
		m, ok := missing[address]
		if !ok {
			continue
		}
		if err := m.replicates(ctx, at, replicas); err != nil {
			return err
		}
		delete(missing, address)
	}
	return nil
}
