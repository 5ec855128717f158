package redis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/lockquake/lockquake/chaos"
)

// WriteRule is when a primary takes writes.
type WriteRule struct {
	// MinReplicas is how many replicas must have been heard within the last second.
	MinReplicas int `yaml:"min_replicas_to_write"`
}

// check refuses what a primary with so many replicas can never have.
func (r WriteRule) check(replicas int) error {
	if r.MinReplicas < 0 || r.MinReplicas > replicas {
		return fmt.Errorf("min_replicas_to_write is %d; it must be from 0 to %d", r.MinReplicas, replicas)
	}
	return nil
}

// options are those of a server.
func (r WriteRule) options() []string {
	return []string{"--min-replicas-to-write", strconv.Itoa(r.MinReplicas), "--min-replicas-max-lag", "1"}
}

// writeRuleKey is under what Describe tells the rule.
const writeRuleKey = "redis.min-replicas-to-write"

func (r WriteRule) describe() string { return fmt.Sprintf("%d, heard within 1s", r.MinReplicas) }

// replicationFacts lists what servers with replicas can be asked beside serverFacts.
func replicationFacts() map[string]string {
	return map[string]string{
		"master":      "name of the node that this one takes for the primary: itself on a primary",
		"link":        `a replica's master_link_status: up or down; "none" on a primary`,
		"offset":      "the replication offset: what a primary has written, what a replica has applied",
		"replicas":    "how many replicas a primary has online; 0 on a replica",
		chaos.FactLag: "how many bytes of what a primary had written the best of its replicas had not received, at least: the primary is asked first",
	}
}

// askReplication answers replicationFacts.
func (ms members) askReplication(ctx context.Context, m member, fact string) (string, error) {
	section, err := m.info(ctx, "replication")
	if err != nil {
		return "", err
	}
	replica := section["role"] == "slave"
	switch fact {
	case "master":
		if !replica {
			return m.name, nil
		}
		return ms.at(upstream(section)), nil
	case "link":
		if !replica {
			return "none", nil
		}
		return section["master_link_status"], nil
	case "offset":
		if replica {
			return section["slave_repl_offset"], nil
		}
		return section["master_repl_offset"], nil
	case "replicas":
		return strconv.Itoa(online(section)), nil
	case chaos.FactLag:
		return ms.lag(ctx, m, section)
	}
	return "", fmt.Errorf("redis has no fact %q", fact)
}

// lag tells by how many bytes the best replica of a primary is behind. What the primary says of its replicas may be a second old, so
// they are asked themselves.
func (ms members) lag(ctx context.Context, primary member, replication map[string]string) (string, error) {
	written, err := strconv.ParseInt(replication["master_repl_offset"], 10, 64)
	if err != nil {
		return "", fmt.Errorf("%s tells no replication offset: %w", primary.name, err)
	}
	offsets := make([]int64, len(ms)) // of those that do not follow it: -1
	var asking sync.WaitGroup
	for i, m := range ms {
		asking.Go(func() {
			offsets[i] = -1
			section, err := m.info(ctx, "replication")
			if err != nil || section["role"] != "slave" || ms.at(upstream(section)) != primary.name {
				return
			}
			if n, err := strconv.ParseInt(section["slave_repl_offset"], 10, 64); err == nil {
				offsets[i] = n
			}
		})
	}
	asking.Wait()
	best := slices.Max(offsets)
	if best < 0 {
		return "", fmt.Errorf("no replica of %s tells its replication offset", primary.name)
	}
	return strconv.FormatInt(max(0, written-best), 10), nil
}

// upstream is the address of a replica's primary.
func upstream(replication map[string]string) string {
	return net.JoinHostPort(replication["master_host"], replication["master_port"])
}

// online counts the replicas that a primary calls online: the first copy has arrived and the stream runs.
func online(replication map[string]string) int {
	n := 0
	for i := range 100 {
		line, ok := replication["slave"+strconv.Itoa(i)]
		if !ok {
			return n
		}
		if strings.Contains(line+",", "state=online,") {
			n++
		}
	}
	return n
}

// ackWithin is how long a write that proves readiness may take to reach the replicas.
const ackWithin = 500 * time.Millisecond

// replicates has a primary take a value at the key, give it back, and so many replicas acknowledge it. A replica calls its link up
// before its primary sends it anything.
func (m member) replicates(ctx context.Context, at string, replicas int) error {
	if replicas == 0 {
		return m.write(ctx, m.client, at)
	}
	own := m.client.Conn() // WAIT asks about the writes of its own connection
	defer func() { _ = own.Close() }()
	if err := m.write(ctx, own, at); err != nil {
		return err
	}
	n, err := own.Wait(ctx, replicas, ackWithin).Result()
	if err != nil {
		return fmt.Errorf("%s does not wait for its replicas: %w", m.name, err)
	}
	if n < int64(replicas) {
		return fmt.Errorf("%d of %d replicas of %s acknowledged a write within %v", n, replicas, m.name, ackWithin)
	}
	return nil
}

var (
	_ chaos.Promoter = (*sentinelService)(nil)
	_ chaos.Promoter = (*clusterService)(nil)

	_ chaos.Sharder = (*clusterService)(nil)

	_ chaos.Leaderless = (*fiveService)(nil)
	_ chaos.Leaderless = (*clusterService)(nil)
)

// Promotes says that there is nobody to take over.
func (s *service) Promotes() error {
	return chaos.Unavailable{What: "a failover in order", Reason: "there is one server, and nobody to take over from it; use backend sentinel or rediscluster, or the fault restart"}
}

// Promotes says that nobody leads.
func (s *fiveService) Promotes() error {
	return chaos.Unavailable{What: "a failover in order", Reason: "the servers of redlock are independent, and none of them leads; use the fault restart"}
}

// Leaderless says that nobody leads, whatever each says of itself: each calls itself a master.
func (s *fiveService) Leaderless(string) string {
	return "the servers of redlock are independent, and none of them leads; write one"
}

// Leaderless says that each part of the locks has a leader of its own.
func (s *clusterService) Leaderless(lock string) string {
	if lock != "" {
		return ""
	}
	return "each part of the locks has a leader of its own; write leader(LOCK), such as leader(lock-0)"
}

// Promotes is always possible.
func (s *sentinelService) Promotes() error { return nil }

// Promote has a Sentinel promote a replica of its choice (SENTINEL FAILOVER), without asking the others.
func (s *sentinelService) Promote(ctx context.Context, node string) (chaos.Promotion, error) {
	role, err := s.Ask(ctx, node, chaos.FactRole)
	if err != nil {
		return chaos.Promotion{}, err
	}
	if !chaos.Leads(role) {
		return chaos.Promotion{}, fmt.Errorf("%s is a %s, and a Sentinel chooses by itself whom it promotes; aim at the leader", node, role)
	}
	var errs []error
	for _, m := range s.sentinels {
		if err := m.client.Do(ctx, "SENTINEL", "FAILOVER", monitored).Err(); err != nil {
			errs = append(errs, fmt.Errorf("SENTINEL FAILOVER of %s: %w", m.name, err))
			continue
		}
		return chaos.Promotion{From: node, How: "SENTINEL FAILOVER, asked of " + m.name}, nil
	}
	return chaos.Promotion{}, errors.Join(errs...)
}

// Settle has nothing to do: the Sentinels make the old primary a replica.
func (s *sentinelService) Settle(context.Context, chaos.Promotion) error { return nil }

// epochOf is the configuration epoch with which the Sentinels name a server as the primary: the latest; "none" where none does.
func (n sentinelNodes) epochOf(ctx context.Context, server string) (string, error) {
	epoch, found := "none", -1
	var errs []error
	for _, m := range n.sentinels {
		v, err := m.primary(ctx)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		number := 0
		if _, err := fmt.Sscan(v["config-epoch"], &number); err == nil && number > found && n.members.at(v["ip"]+":"+v["port"]) == server {
			epoch, found = v["config-epoch"], number
		}
	}
	if len(errs) == len(n.sentinels) {
		return "", errors.Join(errs...)
	}
	return epoch, nil
}

// Promotes is always possible.
func (s *clusterService) Promotes() error { return nil }

// Promote has a replica take the slots of its primary over (CLUSTER FAILOVER), which the primary agrees to and waits for: the node,
// or where that is a primary the first of its replicas.
func (s *clusterService) Promote(ctx context.Context, node string) (chaos.Promotion, error) {
	m, err := s.members.find(node)
	if err != nil {
		return chaos.Promotion{}, err
	}
	v, err := m.view(ctx)
	if err != nil {
		return chaos.Promotion{}, err
	}
	from, to := pair(v)
	if from == nil || to == nil {
		return chaos.Promotion{}, fmt.Errorf("%s knows no replica that could take over", node)
	}
	p := chaos.Promotion{From: s.members.nameOf(from), To: s.members.nameOf(to)}
	p.How = "CLUSTER FAILOVER, asked of " + p.To
	replica, err := s.members.find(p.To)
	if err != nil {
		return p, err
	}
	if err := replica.client.ClusterFailover(ctx).Err(); err != nil {
		return p, fmt.Errorf("%s: %w", p.How, err)
	}
	return p, nil
}

// pair returns the primary and the replica of a handover away from the node whose view it is, or to it.
func pair(v view) (primary, replica *peer) {
	self := v.self()
	for i := range v {
		p := &v[i]
		switch {
		case slices.Contains(p.flags, "fail"):
		case p.id == self.id && self.primary != "-":
			return find(v, self.primary), p
		case p.id == self.id:
			primary = p
		case p.primary == self.id && replica == nil:
			replica = p
		}
	}
	return primary, replica
}

func find(v view, id string) *peer {
	i := slices.IndexFunc(v, func(p peer) bool { return p.id == id })
	if i < 0 {
		return nil
	}
	return &v[i]
}

// Settle has nothing to do: the old primary follows the new one by itself.
func (s *clusterService) Settle(context.Context, chaos.Promotion) error { return nil }
