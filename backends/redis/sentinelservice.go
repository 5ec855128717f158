package redis

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/chaos"
)

// pace is how often the Sentinels do what they do, by SENTINEL DEBUG (Redis 7 and later): with the built-in periods of a second
// and more, a failover takes ten seconds, and an old primary that comes back takes writes as long. It is no part of a Sentinel's
// file: a Sentinel that was restarted works at the built-in pace until Ready sets it again.
var pace = []struct {
	name string
	ms   int
}{{"ping-period", 100}, {"info-period", 200}, {"ask-period", 100}, {"publish-period", 200}}

// failoverTime is what a failover may add to the time after which a lock must be granted again: 1.2 to 1.5 s were measured for
// Sentinel and about as much for Redis Cluster, where the first vote settles it.
const failoverTime = 3 * time.Second

// sentinelService answers for the running nodes.
type sentinelService struct {
	params             SentinelParams
	common             backends.Common
	servers, sentinels members
	formed             bool // Ready has seen it whole once: from then on only the Sentinels say who follows whom
}

// Facts lists what can be asked.
func (s *sentinelService) Facts() map[string]string {
	out := serverFacts()
	maps.Copy(out, replicationFacts())
	out[chaos.FactRole] = "first word of the server's ROLE: master or slave; sentinel for a Sentinel"
	out["master"] = "name of the node that this one takes for the primary: a primary itself, a replica the one it follows, a Sentinel the one it watches"
	out["primary"] = "whichever node is asked: the server that most Sentinels take for the primary and that takes itself for it; no answer while there is no such server"
	out["replicas"] += "; on a Sentinel, how many replicas it sees with their link up"
	out["quorum"] = "Sentinels only: it reaches enough others to agree on a failover and to vote for it (SENTINEL CKQUORUM)"
	out[chaos.FactEpoch] = "the configuration epoch of the primary, which grows with each failover, by a Sentinel's own account; of a server: the " +
		`latest with which a Sentinel names it as the primary, or "none"`
	out["flags"] = "Sentinels only: the primary's flags in its eyes, such as master, or master,s_down,o_down"
	out["tilt"] = "Sentinels only: it distrusts its own clock and does nothing (true or false)"
	return out
}

// Ask asks one node for one fact.
func (s *sentinelService) Ask(ctx context.Context, node, fact string) (string, error) {
	if fact == "primary" {
		return s.elected(ctx)
	}
	if m, err := s.sentinels.find(node); err == nil {
		return s.askSentinel(ctx, m, fact)
	}
	m, err := s.servers.find(node)
	if err != nil {
		return "", err
	}
	if fact == chaos.FactEpoch {
		return s.epochOf(ctx, m.name)
	}
	if _, ok := replicationFacts()[fact]; ok {
		return s.servers.askReplication(ctx, m, fact)
	}
	return m.ask(ctx, fact)
}

func (s *sentinelService) askSentinel(ctx context.Context, m member, fact string) (string, error) {
	switch fact {
	case chaos.FactServes, chaos.FactRole, "run-id":
		return m.ask(ctx, fact)
	case "clock": // a Sentinel has no TIME
		section, err := m.info(ctx, "server")
		if err != nil {
			return "", err
		}
		us, err := strconv.ParseInt(section["server_time_usec"], 10, 64)
		if err != nil {
			return "", fmt.Errorf("clock of %s: %w", m.name, err)
		}
		return clockText(time.UnixMicro(us)), nil
	case "master":
		return s.named(ctx, m)
	case "tilt":
		section, err := m.info(ctx, "sentinel")
		return strconv.FormatBool(section["sentinel_tilt"] == "1"), err
	case "quorum":
		var answer redis.Error
		err := m.client.Do(ctx, "SENTINEL", "CKQUORUM", monitored).Err()
		if err != nil && !errors.As(err, &answer) {
			return "", fmt.Errorf("CKQUORUM of %s: %w", m.name, err)
		}
		return strconv.FormatBool(err == nil), nil
	case "replicas":
		healthy, err := s.followers(ctx, m)
		return strconv.Itoa(len(healthy)), err
	}
	return s.watched(ctx, m, fact)
}

// named is the primary that a Sentinel sends clients to: the promoted one already while a failover goes on.
func (s *sentinelService) named(ctx context.Context, m member) (string, error) {
	v, err := m.client.Do(ctx, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", monitored).StringSlice()
	if err == nil && len(v) != 2 {
		err = fmt.Errorf("its answer has %d words", len(v))
	}
	if err != nil {
		return "", fmt.Errorf("%s names no primary: %w", m.name, err)
	}
	return s.servers.at(net.JoinHostPort(v[0], v[1])), nil
}

// elected is the server that a majority of the Sentinels names and whose own ROLE is master. A Sentinel that does not answer
// has no voice.
func (s *sentinelService) elected(ctx context.Context) (string, error) {
	votes := map[string]int{}
	for _, m := range s.sentinels {
		name, err := s.named(ctx, m)
		if err != nil {
			continue
		}
		if votes[name]++; votes[name] <= len(s.sentinels)/2 {
			continue
		}
		server, err := s.servers.find(name)
		if err != nil {
			return "", err
		}
		role, err := server.ask(ctx, chaos.FactRole)
		if err == nil && role != "master" {
			err = fmt.Errorf("its role is %s", role)
		}
		if err != nil {
			return "", fmt.Errorf("most Sentinels name %s: %w", name, err)
		}
		return name, nil
	}
	return "", fmt.Errorf("no server is named by most Sentinels: %v", votes)
}

// watched answers from what a Sentinel says of the primary.
func (s *sentinelService) watched(ctx context.Context, m member, fact string) (string, error) {
	v, err := m.primary(ctx)
	if err != nil {
		return "", err
	}
	switch fact {
	case "epoch":
		return v["config-epoch"], nil
	case "flags":
		return v["flags"], nil
	}
	return "", fmt.Errorf("a Sentinel has no fact %q", fact)
}

// primary is what a Sentinel says of the primary.
func (m member) primary(ctx context.Context) (map[string]string, error) {
	cmd := redis.NewMapStringStringCmd(ctx, "SENTINEL", "MASTER", monitored)
	_ = m.client.Process(ctx, cmd)
	v, err := cmd.Result()
	if err != nil {
		return nil, fmt.Errorf("%s does not tell of the primary: %w", m.name, err)
	}
	return v, nil
}

// followers returns the addresses of the replicas that a Sentinel sees in good order, with the primary that each follows.
func (s *sentinelService) followers(ctx context.Context, m member) (map[string]string, error) {
	cmd := redis.NewMapStringStringSliceCmd(ctx, "SENTINEL", "REPLICAS", monitored)
	_ = m.client.Process(ctx, cmd)
	list, err := cmd.Result()
	if err != nil {
		return nil, fmt.Errorf("%s does not tell of the replicas: %w", m.name, err)
	}
	out := map[string]string{}
	for _, r := range list {
		if r["flags"] == "slave" && r["master-link-status"] == "ok" {
			out[net.JoinHostPort(r["ip"], r["port"])] = net.JoinHostPort(r["master-host"], r["master-port"])
		}
	}
	return out, nil
}

// Describe returns versions, and every timer and knob: how often locks are granted twice is a function of them.
func (s *sentinelService) Describe(ctx context.Context) map[string]string {
	out := s.params.LockParams.describe(s.common)
	out["redis.topology"] = fmt.Sprintf("%d servers, %d Sentinels", sentinelServers, sentinelWatches)
	out["redis.version"] = s.servers.version(ctx)
	out["redis.persistence"] = s.params.Persistence
	out["redis.min-replicas-to-write"] = fmt.Sprintf("%d, heard within 1s", s.params.MinReplicas)
	out["sentinel.version"] = s.sentinels.version(ctx)
	out["sentinel.quorum"] = strconv.Itoa(sentinelQuorum)
	out["sentinel.down-after"] = s.params.DownAfter.String()
	out["sentinel.failover-timeout"] = s.params.FailoverTimeout.String()
	var periods []string
	for _, t := range pace {
		periods = append(periods, fmt.Sprintf("%s %dms", t.name, t.ms))
	}
	out["sentinel.pace"] = strings.Join(periods, ", ")
	return out
}

// Close frees the connections.
func (s *sentinelService) Close() error {
	return errors.Join(s.servers.close(), s.sentinels.close())
}
