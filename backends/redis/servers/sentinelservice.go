package servers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"

	"github.com/lockquake/lockquake/chaos"
)

// sentinelService answers for the running nodes.
type sentinelService struct {
	sentinel sentinel
	nodes    sentinelNodes
	setup    sentinelSetup
}

// Facts lists the facts.
func (s *sentinelService) Facts() map[string]string {
	out := serverFacts()
	maps.Copy(out, replicationFacts())
	out[chaos.FactRole] = "first word of the server's ROLE: master or slave; sentinel for a Sentinel"
	out["master"] = "name of the primary according to this node: a primary names itself, a replica the server that it follows, a Sentinel the server that it watches"
	out["primary"] = "the server that is the primary according to most Sentinels and to itself, the same for each node; no answer while there is no such server"
	out["replicas"] += "; on a Sentinel, the number of replicas that it sees with their link up"
	out["quorum"] = "Sentinels only: it reaches enough others to agree on a failover and to vote for it (SENTINEL CKQUORUM)"
	out[chaos.FactEpoch] = "the configuration epoch of the primary, which grows with each failover, by a Sentinel's own account; of a server: the " +
		`latest with which a Sentinel names it as the primary, or "none"`
	out["flags"] = "Sentinels only: the primary's flags according to this Sentinel, such as master, or master,s_down,o_down"
	out["tilt"] = "Sentinels only: it distrusts its own clock and does nothing (true or false)"
	return out
}

// Ask asks one node for one fact.
func (s *sentinelService) Ask(ctx context.Context, node, fact string) (string, error) {
	if fact == "primary" {
		return s.nodes.elected(ctx)
	}
	if m, err := s.nodes.sentinels.find(node); err == nil {
		return s.nodes.askSentinel(ctx, m, fact)
	}
	m, err := s.nodes.servers.find(node)
	if err != nil {
		return "", err
	}
	if fact == chaos.FactEpoch {
		return s.nodes.epochOf(ctx, m.name)
	}
	if _, ok := replicationFacts()[fact]; ok {
		return askReplication(ctx, s.nodes.servers, m, fact)
	}
	return m.ask(ctx, fact)
}

// Describe returns versions, and every timer and setting: they determine how often locks are granted twice.
func (s *sentinelService) Describe(ctx context.Context) map[string]string {
	out := s.sentinel.locks.describe(s.sentinel.params.LockParams, s.sentinel.common)
	out["redis.topology"] = fmt.Sprintf("%d servers, %d Sentinels", len(s.nodes.servers), len(s.nodes.sentinels))
	out["redis.version"] = s.nodes.servers.version(ctx)
	out["redis.persistence"] = s.sentinel.params.Persistence
	out[writeRuleKey] = s.sentinel.params.WriteRule.describe()
	out["sentinel.version"] = s.nodes.sentinels.version(ctx)
	out["sentinel.quorum"] = strconv.Itoa(sentinelQuorum)
	out["sentinel.down-after"] = s.sentinel.params.DownAfter.String()
	out["sentinel.failover-timeout"] = s.sentinel.params.FailoverTimeout.String()
	var periods []string
	for _, t := range pace {
		periods = append(periods, fmt.Sprintf("%s %dms", t.name, t.ms))
	}
	out["sentinel.pace"] = strings.Join(periods, ", ")
	s.sentinel.common.Drop(out, "redis.persistence", writeRuleKey, "sentinel.quorum", "sentinel.down-after",
		"sentinel.failover-timeout", "sentinel.pace")
	return out
}

// Keepers returns all servers, without the Sentinels.
func (s *sentinelService) Keepers() []string { return s.nodes.servers.Keepers() }

// Requests counts the commands that each server has processed.
func (s *sentinelService) Requests(ctx context.Context) map[string]int64 {
	return s.nodes.servers.Requests(ctx)
}

// Connections counts the connections that each server has accepted, including those of replicas and Sentinels.
func (s *sentinelService) Connections(ctx context.Context) map[string]int64 {
	return s.nodes.servers.Connections(ctx)
}

// Close frees the connections.
func (s *sentinelService) Close() error {
	return errors.Join(s.nodes.servers.Close(), s.nodes.sentinels.Close())
}

// Vacant looks for keys on the primary that the Sentinels name.
func (s *sentinelService) Vacant(ctx context.Context) (string, error) {
	v, err := s.attached(ctx)
	if err != nil {
		return "", err
	}
	return v.Vacant(ctx)
}

// Remove deletes the run's keys on the primary; its replicas follow.
func (s *sentinelService) Remove(ctx context.Context, locks []string) (string, error) {
	v, err := s.attached(ctx)
	if err != nil {
		return "", err
	}
	return v.Remove(ctx, locks)
}

func (s *sentinelService) attached(ctx context.Context) (attachedServers, error) {
	primary, err := s.nodes.primary(ctx)
	return attachedServers{servers: members{primary}, common: s.sentinel.common}, err
}

// Ready brings the nodes together. On external ones it only makes the primary take a write: it changes neither the
// replication nor a Sentinel's timers.
func (s *sentinelService) Ready(ctx context.Context) error {
	if s.sentinel.common.Attached == nil {
		return s.setup.ready(ctx)
	}
	v, err := s.attached(ctx)
	if err != nil {
		return err
	}
	return v.Ready(ctx)
}
