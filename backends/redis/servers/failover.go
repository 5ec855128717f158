package servers

import (
	"context"
	"errors"
	"fmt"

	"github.com/lockquake/lockquake/backends/redis/access"
	"github.com/lockquake/lockquake/chaos"
)

// Promotes returns an error: there is no other server to take over.
func (s *service) Promotes() error {
	return chaos.Unavailable{
		What:   "an orderly failover",
		Reason: "there is only one server; use backend sentinel or rediscluster, or the fault restart",
	}
}

// Promotes returns an error: there is no leader.
func (s *fiveService) Promotes() error {
	return chaos.Unavailable{
		What:   "an orderly failover",
		Reason: "the servers of redlock are independent, without a leader; use the fault restart",
	}
}

// Leaderless says that there is no leader, although each server calls itself a master.
func (s *fiveService) Leaderless(string) string {
	return "the servers of redlock are independent, without a leader; write one"
}

// Leaderless says that each part of the locks has its own leader.
func (s *clusterService) Leaderless(lock string) string {
	if lock != "" {
		return ""
	}
	return "each part of the locks has its own leader; write leader(LOCK), such as leader(lock-0)"
}

// Promotes is always possible.
func (s *sentinelService) Promotes() error { return nil }

// Promote makes a Sentinel promote a replica of its choice (SENTINEL FAILOVER), without asking the others.
func (s *sentinelService) Promote(ctx context.Context, node string) (chaos.Promotion, error) {
	role, err := s.Ask(ctx, node, chaos.FactRole)
	if err != nil {
		return chaos.Promotion{}, err
	}
	if !chaos.Leads(role) {
		return chaos.Promotion{}, fmt.Errorf("%s is a %s, but Sentinels choose the new primary themselves; target the leader", node, role)
	}
	var errs []error
	for _, m := range s.nodes.sentinels {
		if err := m.client.Do(ctx, "SENTINEL", "FAILOVER", access.Monitored).Err(); err != nil {
			errs = append(errs, fmt.Errorf("SENTINEL FAILOVER of %s: %w", m.name, err))
			continue
		}
		return chaos.Promotion{From: node, How: "SENTINEL FAILOVER, asked of " + m.name}, nil
	}
	return chaos.Promotion{}, errors.Join(errs...)
}

// Settle has nothing to do: the Sentinels make the old primary a replica.
func (s *sentinelService) Settle(context.Context, chaos.Promotion) error { return nil }

// clusterHandover makes replicas take over.
type clusterHandover struct{ servers members }

// Promotes is always possible.
func (clusterHandover) Promotes() error { return nil }

// Promote makes a replica take over the slots of its primary (CLUSTER FAILOVER), in agreement with the primary. The
// replica is the node, or, if that is a primary, the first of its replicas.
func (h clusterHandover) Promote(ctx context.Context, node string) (chaos.Promotion, error) {
	m, err := h.servers.find(node)
	if err != nil {
		return chaos.Promotion{}, err
	}
	v, err := viewOf(ctx, m)
	if err != nil {
		return chaos.Promotion{}, err
	}
	from, to := pair(v)
	if from == nil || to == nil {
		return chaos.Promotion{}, fmt.Errorf("%s knows no replica that could take over", node)
	}
	p := chaos.Promotion{From: from.nameAmong(h.servers), To: to.nameAmong(h.servers)}
	p.How = "CLUSTER FAILOVER, asked of " + p.To
	replica, err := h.servers.find(p.To)
	if err != nil {
		return p, err
	}
	if err := replica.client.ClusterFailover(ctx).Err(); err != nil {
		return p, fmt.Errorf("%s: %w", p.How, err)
	}
	return p, nil
}

// Settle has nothing to do: the old primary follows the new one by itself.
func (clusterHandover) Settle(context.Context, chaos.Promotion) error { return nil }
