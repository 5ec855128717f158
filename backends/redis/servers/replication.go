package servers

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/lockquake/lockquake/chaos"
)

// WriteRule is the condition on which a primary takes writes.
type WriteRule struct {
	// MinReplicas is how many replicas the primary must have heard from within the last second.
	MinReplicas int `yaml:"min_replicas_to_write"`
}

// check rejects a number of replicas that a primary can never have.
func (r WriteRule) check(replicas int) error {
	if r.MinReplicas < 0 || r.MinReplicas > replicas {
		return fmt.Errorf("min_replicas_to_write is %d; it must be from 0 to %d", r.MinReplicas, replicas)
	}
	return nil
}

// options returns the server's options.
func (r WriteRule) options() []string {
	return []string{"--min-replicas-to-write", strconv.Itoa(r.MinReplicas), "--min-replicas-max-lag", "1"}
}

// writeRuleKey is the rule's key in Describe.
const writeRuleKey = "redis.min-replicas-to-write"

func (r WriteRule) describe() string { return fmt.Sprintf("%d, heard within 1s", r.MinReplicas) }

// replicationFacts lists the facts of servers with replicas, besides serverFacts.
func replicationFacts() map[string]string {
	return map[string]string{
		"master":      "name of the primary according to this node: itself on a primary",
		"link":        `a replica's master_link_status: up or down; "none" on a primary`,
		"offset":      "the replication offset: written by a primary, applied by a replica",
		"replicas":    "number of online replicas of a primary; 0 on a replica",
		chaos.FactLag: "bytes that a primary had written and its best replica had not received, a lower bound: the primary is asked first",
	}
}

// askReplication answers replicationFacts.
func askReplication(ctx context.Context, ms members, m member, fact string) (string, error) {
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
		return lag(ctx, ms, m, section)
	}
	return "", fmt.Errorf("redis has no fact %q", fact)
}

// lag returns by how many bytes a primary's most advanced replica is behind. The primary's information about its
// replicas may be a second old, so the replicas are asked themselves.
func lag(ctx context.Context, ms members, primary member, replication map[string]string) (string, error) {
	written, err := strconv.ParseInt(replication["master_repl_offset"], 10, 64)
	if err != nil {
		return "", fmt.Errorf("%s reports no replication offset: %w", primary.name, err)
	}
	offsets := make([]int64, len(ms)) // -1 for those that do not follow it
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
		return "", fmt.Errorf("no replica of %s reports its replication offset", primary.name)
	}
	return strconv.FormatInt(max(0, written-best), 10), nil
}

// upstream returns the address of a replica's primary.
func upstream(replication map[string]string) string {
	return net.JoinHostPort(replication["master_host"], replication["master_port"])
}

// online counts the replicas that a primary calls online: the initial copy has arrived and the stream runs.
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

// ackWithin is how long the write of a readiness check may take to reach the replicas.
const ackWithin = 500 * time.Millisecond

// replicates makes a primary take a value at the key, reads it back, and waits until so many replicas acknowledge it.
// The link status is not enough: a replica calls its link up before its primary sends it anything.
func (m member) replicates(ctx context.Context, at string, replicas int) error {
	if replicas == 0 {
		return m.write(ctx, m.client, at)
	}
	own := m.client.Conn() // WAIT is about the writes of its own connection
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
