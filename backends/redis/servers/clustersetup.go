package servers

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// clusterSetup brings the servers of a cluster together.
type clusterSetup struct {
	servers members
	buses   map[string]string // addresses of the bus by node
	formed  bool              // ready has seen it whole once: from then on the cluster alone says who follows whom
}

// form gives the primaries their slots, has all nodes meet and the replicas follow. Each part is left out where it was
// done; a replica that has not heard of its primary yet is an error, and done at the next call.
func (s *clusterSetup) form(ctx context.Context) error {
	views := make([]view, len(s.servers))
	for i, m := range s.servers {
		v, err := viewOf(ctx, m)
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
	for i, m := range s.servers {
		for _, other := range s.servers[i+1:] {
			if slices.ContainsFunc(views[i], func(p peer) bool { return p.address == other.address }) {
				continue // known, or shaking hands
			}
			if err := s.meet(ctx, m, other); err != nil {
				return err
			}
		}
	}
	for i, m := range s.servers[clusterPrimaries:] {
		if err := follow(ctx, m, views[clusterPrimaries+i], views[i].self().id); err != nil {
			return err
		}
	}
	return nil
}

// prepare sets what a node must have before it meets others: an epoch of its own, so that no two primaries quarrel
// about one, and a primary's slots.
func (s *clusterSetup) prepare(ctx context.Context, i int, v view) error {
	m := s.servers[i]
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

func (s *clusterSetup) meet(ctx context.Context, m, other member) error {
	host, port := splitAddress(other.address)
	_, bus := splitAddress(s.buses[other.name])
	if err := m.client.Do(ctx, "CLUSTER", "MEET", host, port, bus).Err(); err != nil {
		return fmt.Errorf("have %s meet %s: %w", m.name, other.name, err)
	}
	return nil
}

// follow makes a node a replica of the primary with that id, unless it is one, or was promoted already on a slow
// machine.
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
func (s *clusterSetup) whole(ctx context.Context, m member) ([]string, error) {
	info, err := clusterInfo(ctx, m)
	if err != nil {
		return nil, err
	}
	for name, want := range map[string]string{
		"cluster_state": "ok", "cluster_slots_ok": strconv.Itoa(slots),
		"cluster_known_nodes": strconv.Itoa(clusterServers),
	} {
		if info[name] != want {
			return nil, fmt.Errorf("%s of %s is %s; awaited is %s", name, m.name, info[name], want)
		}
	}
	ranges, primaries, err := shardsOf(ctx, m)
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

// ready returns nil when every node calls the cluster whole, knows all others, and lists for every slot a primary
// with a replica that has its data. Every primary must also take a write that its replica acknowledges. Until that was
// so for the first time, it also introduces the nodes to each other.
func (s *clusterSetup) ready(ctx context.Context) error {
	for _, m := range s.servers {
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
	for _, m := range s.servers {
		seen, err := s.whole(ctx, m)
		if err != nil {
			return err
		}
		if primaries == nil {
			primaries = seen
		}
		if !slices.Equal(seen, primaries) {
			return fmt.Errorf("%s takes %s for the primaries, others %s", m.name, strings.Join(seen, ", "),
				strings.Join(primaries, ", "))
		}
	}
	v, err := viewOf(ctx, s.servers[0])
	if err != nil {
		return err
	}
	var takers members
	for _, address := range primaries {
		m, err := s.servers.find(s.servers.at(address))
		if err != nil {
			return err
		}
		takers = append(takers, m)
	}
	err = writeAll(ctx, s.servers, takers, 1, func(slot int) string {
		if p := v.owner(slot); p != nil {
			return p.address
		}
		return ""
	})
	s.formed = err == nil
	return err
}
