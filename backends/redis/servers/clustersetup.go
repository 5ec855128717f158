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
	buses   map[string]string // bus addresses by node
	formed  bool              // ready has seen it whole once: from then on only the cluster decides who follows whom
}

// form gives the primaries their slots, makes all nodes meet and the replicas follow. It skips what is already done.
// A replica that does not know its primary yet is an error; the next call tries again.
func (s *clusterSetup) form(ctx context.Context) error {
	views := make([]view, len(s.servers))
	for i, m := range s.servers {
		v, err := viewOf(ctx, m)
		if err != nil {
			return err
		}
		if views[i] = v; len(v) > 1 {
			continue // it has met others: all earlier steps are done
		}
		if err := s.prepare(ctx, i, v); err != nil {
			return err
		}
	}
	for i, m := range s.servers {
		for _, other := range s.servers[i+1:] {
			if slices.ContainsFunc(views[i], func(p peer) bool { return p.address == other.address }) {
				continue // known, or in the handshake
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

// prepare sets what a node needs before it meets others: a unique epoch, so that no two primaries conflict over one,
// and a primary's slots.
func (s *clusterSetup) prepare(ctx context.Context, i int, v view) error {
	m := s.servers[i]
	// Refused if an earlier, interrupted call has set it: the slots show whether all is done.
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

// follow makes a node a replica of the primary with that id, unless it is one already, or was promoted meanwhile on a
// slow machine.
func follow(ctx context.Context, m member, v view, primary string) error {
	if self := v.self(); self.primary == primary || len(self.slots) > 0 {
		return nil
	}
	if err := m.client.ClusterReplicate(ctx, primary).Err(); err != nil {
		return fmt.Errorf("make %s a replica: %w", m.name, err)
	}
	return nil
}

// whole returns the sorted addresses of the primaries according to one node, and an error if anything is missing.
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
			return nil, fmt.Errorf("%s of %s is %s; expected %s", name, m.name, info[name], want)
		}
	}
	ranges, primaries, err := shardsOf(ctx, m)
	if err != nil {
		return nil, err
	}
	for _, r := range ranges {
		if len(r.Nodes) < 2 { // a replica without data is not listed yet
			return nil, fmt.Errorf("%s knows no replica in sync for slots %d to %d", m.name, r.Start, r.End)
		}
	}
	return primaries, nil
}

// ready returns nil if every node calls the cluster whole, knows all others, and lists for every slot a primary with
// a replica that has its data. Every primary must also take a write that its replica acknowledges. Until that has
// held once, it also introduces the nodes to each other.
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
			return fmt.Errorf("according to %s the primaries are %s, according to others %s", m.name, strings.Join(seen, ", "),
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
