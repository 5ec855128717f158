package servers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockquake/lockquake/chaos"
)

// sentinelNodes is the servers, and the Sentinels that decide which of them is the primary.
type sentinelNodes struct {
	servers   members
	sentinels members
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

// named returns the primary to which a Sentinel sends clients: during a failover already the promoted one.
func (n sentinelNodes) named(ctx context.Context, m member) (string, error) {
	v, err := m.client.Do(ctx, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", m.master).StringSlice()
	if err == nil && len(v) != 2 {
		err = fmt.Errorf("its answer has %d words", len(v))
	}
	if err != nil {
		return "", fmt.Errorf("%s names no primary: %w", m.name, err)
	}
	return n.servers.at(net.JoinHostPort(v[0], v[1])), nil
}

// elected returns the server that a majority of the Sentinels names and whose own ROLE is master. A Sentinel that
// does not answer has no vote.
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
		server, err := n.servers.find(name)
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
	return "", fmt.Errorf("most Sentinels agree on no server: %v", votes)
}

// watched answers a fact from a Sentinel's view of the primary.
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

// primary returns a Sentinel's view of the primary.
func (m member) primary(ctx context.Context) (map[string]string, error) {
	cmd := redis.NewMapStringStringCmd(ctx, "SENTINEL", "MASTER", m.master)
	_ = m.client.Process(ctx, cmd)
	v, err := cmd.Result()
	if err != nil {
		return nil, fmt.Errorf("%s does not report the primary: %w", m.name, err)
	}
	return v, nil
}

// followers returns the addresses of the replicas that a Sentinel sees in good order, each with the primary that it
// follows.
func (n sentinelNodes) followers(ctx context.Context, m member) (map[string]string, error) {
	cmd := redis.NewMapStringStringSliceCmd(ctx, "SENTINEL", "REPLICAS", m.master)
	_ = m.client.Process(ctx, cmd)
	list, err := cmd.Result()
	if err != nil {
		return nil, fmt.Errorf("%s does not report the replicas: %w", m.name, err)
	}
	out := map[string]string{}
	for _, r := range list {
		if r["flags"] == "slave" && r["master-link-status"] == "ok" {
			out[net.JoinHostPort(r["ip"], r["port"])] = net.JoinHostPort(r["master-host"], r["master-port"])
		}
	}
	return out, nil
}

// primary finds the primary of external Sentinels.
func (n sentinelNodes) primary(ctx context.Context) (member, error) {
	for _, m := range n.sentinels {
		if err := m.client.Ping(ctx).Err(); err != nil {
			return member{}, fmt.Errorf("%s at %s does not answer: %w", m.name, m.address, err)
		}
	}
	name, err := n.elected(ctx)
	if err != nil {
		return member{}, fmt.Errorf("%w; `endpoints` must list the addresses that the Sentinels give to clients", err)
	}
	return n.servers.find(name)
}

// epochOf returns the latest configuration epoch with which the Sentinels name a server as the primary; "none" if
// none does.
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
		if _, err := fmt.Sscan(v["config-epoch"], &number); err == nil && number > found &&
			n.servers.at(v["ip"]+":"+v["port"]) == server {
			epoch, found = v["config-epoch"], number
		}
	}
	if len(errs) == len(n.sentinels) {
		return "", errors.Join(errs...)
	}
	return epoch, nil
}
