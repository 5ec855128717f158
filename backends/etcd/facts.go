package etcd

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockquake/lockquake/backends/topology"
	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/history"
)

// Prefixes of facts that end with the name of a lock.
const (
	holderFact  = history.FactHolder
	waitersFact = "waiters:"
)

// Facts lists the facts. LOCK stands for the name of a lock.
func (s *service) Facts() map[string]string {
	return map[string]string{
		chaos.FactServes:    "the member answers a linearizable read, for which it needs a quorum",
		chaos.FactAnswers:   "the member answers by itself, with or without a quorum",
		"role":              "leader or follower, according to the member",
		"leader":            `name of the leader according to this member, or "none"`,
		"clock":             "the member's wall clock by the Date header of its HTTP endpoint, RFC 3339, UTC, whole seconds",
		"revision":          "the member's latest revision",
		"raft-term":         "the member's Raft term, which grows with each election",
		chaos.FactEpoch:     "the same",
		chaos.FactSyncTime:  "the time that the member has spent in fsyncs of its log, in milliseconds (etcd_disk_wal_fsync_duration_seconds)",
		chaos.FactWrites:    "the cluster accepts a write through the member, at a key that no lock has; the query itself writes",
		"leases":            "number of live leases, according to the member",
		holderFact + "LOCK": `the id of the grant that holds lock LOCK, by a linearizable read, or "none"; all sharers, comma-separated`,
		waitersFact + "LOCK": "number of users who wait for lock LOCK, by a linearizable read; for txn and chubby, " +
			"whose waiters leave no key: number of watchers of all members, of any lock",
	}
}

// Ask asks one member for one fact.
func (s *service) Ask(ctx context.Context, node, fact string) (string, error) {
	m, err := s.member(node)
	if err != nil {
		return "", err
	}
	ctx, done := context.WithTimeout(ctx, s.params.Timeout)
	defer done()
	if name, ok := strings.CutPrefix(fact, holderFact); ok {
		return s.records.holder(ctx, m.client, s.keys.at(name))
	}
	if name, ok := strings.CutPrefix(fact, waitersFact); ok {
		return s.waiters(ctx, m, name)
	}
	switch fact {
	case chaos.FactServes:
		_, err := m.client.Get(ctx, s.keys.ready())
		return strconv.FormatBool(err == nil), nil
	case chaos.FactAnswers:
		_, err := m.client.Status(ctx, m.addr)
		return strconv.FormatBool(err == nil), nil
	case chaos.FactSyncTime:
		seconds, err := m.metric(ctx, "etcd_disk_wal_fsync_duration_seconds_sum")
		return strconv.FormatFloat(1000*seconds, 'f', 3, 64), err
	case chaos.FactWrites:
		_, err := m.client.Put(ctx, s.keys.ready(), m.name)
		return strconv.FormatBool(err == nil), err
	case "clock":
		return m.clock(ctx)
	case "leases":
		r, err := m.client.Leases(ctx)
		if err != nil {
			return "", fmt.Errorf("leases of %s: %w", m.name, err)
		}
		return strconv.Itoa(len(r.Leases)), nil
	case chaos.FactEpoch:
		return s.status(ctx, m, "raft-term")
	case "role", "leader", "revision", "raft-term":
		return s.status(ctx, m, fact)
	}
	return "", fmt.Errorf("etcd has no fact %q", fact)
}

func (s *service) member(node string) (member, error) {
	for _, m := range s.members {
		if m.name == node {
			return m, nil
		}
	}
	return member{}, fmt.Errorf("etcd has no node %q", node)
}

// status answers from the member's own status.
func (s *service) status(ctx context.Context, m member, fact string) (string, error) {
	st, err := m.client.Status(ctx, m.addr)
	if err != nil {
		return "", fmt.Errorf("status of %s: %w", m.name, err)
	}
	switch {
	case fact == "revision":
		return strconv.FormatInt(st.Header.Revision, 10), nil
	case fact == "raft-term":
		return strconv.FormatUint(st.RaftTerm, 10), nil
	case fact == "role" && st.Leader == st.Header.MemberId:
		return "leader", nil
	case fact == "role":
		return "follower", nil
	case st.Leader == 0:
		return none, nil
	}
	return s.nameOf(ctx, st.Leader)
}

// nameOf returns the name of the member with that id. Each member that answers reports its own id, so no quorum is
// needed.
func (s *service) nameOf(ctx context.Context, id uint64) (string, error) {
	for _, m := range s.members {
		bounded, done := context.WithTimeout(ctx, s.params.Timeout/time.Duration(len(s.members)+1))
		list, err := m.client.MemberList(bounded, clientv3.WithSerializable())
		done()
		if err != nil {
			continue
		}
		for _, known := range list.Members {
			if known.ID == id {
				return known.Name, nil
			}
		}
	}
	return "", fmt.Errorf("no member that answers knows member %x", id)
}

// waiters counts the waiters of a lock.
func (s *service) waiters(ctx context.Context, m member, lockName string) (string, error) {
	if s.records.waiters != nil {
		n, err := s.records.waiters(ctx, m.client, s.keys.at(lockName))
		return strconv.Itoa(n), err
	}
	total := 0
	for _, m := range s.members {
		n, err := m.watchers(ctx)
		if err != nil {
			return "", err
		}
		total += n
	}
	return strconv.Itoa(total), nil
}

// Stored asks the members; the first that answers does so with a linearizable read.
func (s *service) Stored(ctx context.Context, name string) (topology.Stored, error) {
	return topology.StoredBy(ctx, s.members, func(ctx context.Context, m member) (string,
		error,
	) {
		return s.Ask(ctx, m.name, holderFact+name)
	})
}
