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

	"github.com/lockquake/lockquake/backends/topology"
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

// sentinelNodes is the servers, and the Sentinels that say which of them is the primary.
type sentinelNodes struct {
	members
	sentinels members
}

// sentinelService answers for the running nodes.
type sentinelService struct {
	sentinelNodes
	params SentinelParams
	common topology.Common
	formed bool // Ready has seen it whole once: from then on only the Sentinels say who follows whom
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
	m, err := s.members.find(node)
	if err != nil {
		return "", err
	}
	if fact == chaos.FactEpoch {
		return s.epochOf(ctx, m.name)
	}
	if _, ok := replicationFacts()[fact]; ok {
		return s.members.askReplication(ctx, m, fact)
	}
	return m.ask(ctx, fact)
}

func (n sentinelNodes) askSentinel(ctx context.Context, m member, fact string) (string, error) {
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
		return n.named(ctx, m)
	case "tilt":
		section, err := m.info(ctx, "sentinel")
		return strconv.FormatBool(section["sentinel_tilt"] == "1"), err
	case "quorum":
		var answer redis.Error
		err := m.client.Do(ctx, "SENTINEL", "CKQUORUM", m.master).Err()
		if err != nil && !errors.As(err, &answer) {
			return "", fmt.Errorf("CKQUORUM of %s: %w", m.name, err)
		}
		return strconv.FormatBool(err == nil), nil
	case "replicas":
		healthy, err := n.followers(ctx, m)
		return strconv.Itoa(len(healthy)), err
	}
	return n.watched(ctx, m, fact)
}

// named is the primary that a Sentinel sends clients to: the promoted one already while a failover goes on.
func (n sentinelNodes) named(ctx context.Context, m member) (string, error) {
	v, err := m.client.Do(ctx, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", m.master).StringSlice()
	if err == nil && len(v) != 2 {
		err = fmt.Errorf("its answer has %d words", len(v))
	}
	if err != nil {
		return "", fmt.Errorf("%s names no primary: %w", m.name, err)
	}
	return n.members.at(net.JoinHostPort(v[0], v[1])), nil
}

// elected is the server that a majority of the Sentinels names and whose own ROLE is master. A Sentinel that does not answer
// has no voice.
func (n sentinelNodes) elected(ctx context.Context) (string, error) {
	votes := map[string]int{}
	for _, m := range n.sentinels {
		name, err := n.named(ctx, m)
		if err != nil {
			continue
		}
		if votes[name]++; votes[name] <= len(n.sentinels)/2 {
			continue
		}
		server, err := n.members.find(name)
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
func (n sentinelNodes) watched(ctx context.Context, m member, fact string) (string, error) {
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
	cmd := redis.NewMapStringStringCmd(ctx, "SENTINEL", "MASTER", m.master)
	_ = m.client.Process(ctx, cmd)
	v, err := cmd.Result()
	if err != nil {
		return nil, fmt.Errorf("%s does not tell of the primary: %w", m.name, err)
	}
	return v, nil
}

// followers returns the addresses of the replicas that a Sentinel sees in good order, with the primary that each follows.
func (n sentinelNodes) followers(ctx context.Context, m member) (map[string]string, error) {
	cmd := redis.NewMapStringStringSliceCmd(ctx, "SENTINEL", "REPLICAS", m.master)
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

// Describe returns versions, and every timer and setting: how often locks are granted twice depends on them.
func (s *sentinelService) Describe(ctx context.Context) map[string]string {
	out := s.params.LockParams.describe(s.common)
	out["redis.topology"] = fmt.Sprintf("%d servers, %d Sentinels", len(s.members), len(s.sentinels))
	out["redis.version"] = s.members.version(ctx)
	out["redis.persistence"] = s.params.Persistence
	out[writeRuleKey] = s.params.WriteRule.describe()
	out["sentinel.version"] = s.sentinels.version(ctx)
	out["sentinel.quorum"] = strconv.Itoa(sentinelQuorum)
	out["sentinel.down-after"] = s.params.DownAfter.String()
	out["sentinel.failover-timeout"] = s.params.FailoverTimeout.String()
	var periods []string
	for _, t := range pace {
		periods = append(periods, fmt.Sprintf("%s %dms", t.name, t.ms))
	}
	out["sentinel.pace"] = strings.Join(periods, ", ")
	s.common.Drop(out, "redis.persistence", writeRuleKey, "sentinel.quorum", "sentinel.down-after", "sentinel.failover-timeout", "sentinel.pace")
	return out
}

// Close frees the connections.
func (s *sentinelService) Close() error {
	return errors.Join(s.members.Close(), s.sentinels.Close())
}

// Ready returns nil when all of this is true:
//   - all six nodes answer
//   - every Sentinel names the same primary, calls it nothing but a master, and has its quorum
//   - every Sentinel sees both replicas follow the primary with their links up, and both other Sentinels
//   - the primary takes a write, and both replicas acknowledge it
//
// Until that was so for the first time, it also says who follows whom and what is watched.
func (s *sentinelService) Ready(ctx context.Context) error {
	if s.common.Attached != nil {
		return s.readyAsGuest(ctx)
	}
	for _, list := range []members{s.members, s.sentinels} {
		for _, m := range list {
			if err := m.client.Ping(ctx).Err(); err != nil {
				return fmt.Errorf("%s does not answer: %w", m.name, err)
			}
		}
	}
	if err := s.setPace(ctx); err != nil {
		return err
	}
	if !s.formed {
		if err := s.form(ctx); err != nil {
			return err
		}
	}
	primary, err := s.agreed(ctx)
	if err != nil {
		return err
	}
	if err := primary.replicates(ctx, primary.keys.ready(), sentinelServers-1); err != nil {
		return err
	}
	s.formed = true
	return nil
}

func (s *sentinelService) setPace(ctx context.Context) error {
	args := []any{"SENTINEL", "DEBUG"}
	for _, t := range pace {
		args = append(args, t.name, t.ms)
	}
	for _, m := range s.sentinels {
		if err := m.client.Do(ctx, args...).Err(); err != nil {
			return fmt.Errorf("set the periods of %s: %w", m.name, err)
		}
	}
	return nil
}

// form makes the first server the primary of the others and has every Sentinel watch it. It may be called again where an
// earlier call was cut short.
func (s *sentinelService) form(ctx context.Context) error {
	primary := ""
	known := map[string]map[string]string{}
	for _, m := range s.sentinels {
		if v, err := m.primary(ctx); err == nil {
			known[m.name], primary = v, net.JoinHostPort(v["ip"], v["port"])
		}
	}
	if primary == "" {
		primary = s.members[0].address
		for _, m := range s.members[1:] {
			host, port := splitAddress(primary)
			if err := m.client.ReplicaOf(ctx, host, port).Err(); err != nil {
				return fmt.Errorf("make %s a replica: %w", m.name, err)
			}
		}
	}
	for _, m := range s.sentinels {
		if err := s.monitor(ctx, m, primary, known[m.name]); err != nil {
			return err
		}
	}
	return nil
}

// monitor has one Sentinel watch the primary, unless it does already, and sets the timers that are not as they should be.
func (s *sentinelService) monitor(ctx context.Context, m member, primary string, known map[string]string) error {
	if known == nil {
		host, port := splitAddress(primary)
		if err := m.client.Do(ctx, "SENTINEL", "MONITOR", monitored, host, port, sentinelQuorum).Err(); err != nil {
			return fmt.Errorf("have %s watch %s: %w", m.name, primary, err)
		}
		if m.password != "" {
			if err := m.client.Do(ctx, "SENTINEL", "SET", monitored, "auth-pass", m.password).Err(); err != nil {
				_ = m.client.Do(ctx, "SENTINEL", "REMOVE", monitored).Err() // the next call begins anew
				return fmt.Errorf("tell %s the password of %s: %w", m.name, primary, err)
			}
		}
	}
	for name, want := range map[string]int64{
		"down-after-milliseconds": s.params.DownAfter.Milliseconds(), "failover-timeout": s.params.FailoverTimeout.Milliseconds(),
	} {
		if known[name] == strconv.FormatInt(want, 10) {
			continue
		}
		if err := m.client.Do(ctx, "SENTINEL", "SET", monitored, name, want).Err(); err != nil {
			return fmt.Errorf("set %s of %s: %w", name, m.name, err)
		}
	}
	return nil
}

// agreed returns the primary when all Sentinels agree that all is well.
func (s *sentinelService) agreed(ctx context.Context) (member, error) {
	var first, name string
	for _, m := range s.sentinels {
		v, err := m.primary(ctx)
		if err != nil {
			return member{}, err
		}
		address := net.JoinHostPort(v["ip"], v["port"])
		if first == "" {
			first, name = address, m.name
		}
		for _, c := range []struct{ what, got, want string }{
			{"names the primary", address, first},
			{"gives it the flags", v["flags"], "master"},
			{"counts its replicas as", v["num-slaves"], strconv.Itoa(sentinelServers - 1)},
			{"counts other Sentinels as", v["num-other-sentinels"], strconv.Itoa(sentinelWatches - 1)},
		} {
			if c.got != c.want {
				return member{}, fmt.Errorf("%s %s %q; awaited is %q (%s names %s)", m.name, c.what, c.got, c.want, name, s.members.at(first))
			}
		}
		if err := s.content(ctx, m, first); err != nil {
			return member{}, err
		}
	}
	return s.members.find(s.members.at(first))
}

// content tells whether a Sentinel sees both replicas follow the primary, and has its quorum.
func (s *sentinelService) content(ctx context.Context, m member, primary string) error {
	healthy, err := s.followers(ctx, m)
	if err != nil {
		return err
	}
	n := 0
	for _, follows := range healthy {
		if follows == primary {
			n++
		}
	}
	if n != sentinelServers-1 {
		return fmt.Errorf("%s sees %d of %d replicas follow %s with their links up", m.name, n, sentinelServers-1, s.members.at(primary))
	}
	if err := m.client.Do(ctx, "SENTINEL", "CKQUORUM", monitored).Err(); err != nil {
		return fmt.Errorf("%s: %w", m.name, err)
	}
	return nil
}
