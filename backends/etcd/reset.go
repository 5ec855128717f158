package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockquake/lockquake/backends/topology"
)

var _ topology.Resetter = (*service)(nil)

// resetPatience is how long to wait for the effect of a reset. A member learns of a revoked lease within a heartbeat,
// and of the end of a client's watch when its connection ends.
const resetPatience = 3 * time.Second

// Reset revokes all leases and deletes all keys of locks. The revision is not reset.
func (s *service) Reset(ctx context.Context) ([]string, error) {
	if s.broken != nil {
		return nil, s.broken
	}
	if len(s.members) == 0 {
		return nil, errors.New("there are no members")
	}
	m := s.members[0]
	list, err := m.client.Leases(ctx)
	if err != nil {
		return nil, fmt.Errorf("leases of %s: %w", m.name, err)
	}
	for _, l := range list.Leases {
		// It may have expired meanwhile, which is fine; nothingLeft checks.
		_, _ = m.client.Revoke(ctx, l.ID)
	}
	deleted, err := m.client.Delete(ctx, ownKeys, clientv3.WithPrefix())
	if err != nil {
		return nil, fmt.Errorf("delete the keys of locks through %s: %w", m.name, err)
	}
	evidence := []string{fmt.Sprintf("%d leases were revoked and %d keys of locks deleted, through %s",
		len(list.Leases), deleted.Deleted, m.name)}
	for _, m := range s.members {
		if err := topology.Until(ctx, resetPatience, m.nothingLeft); err != nil {
			return nil, err
		}
		evidence = append(evidence, m.name+": no key by a linearizable count, no lease, no watcher, no alarm")
	}
	return evidence, nil
}

// ownKeys begins all keys that locks and the harness create: see keyspace.
const ownKeys = "lockquake"

// nothingLeft returns an error while a member has anything left.
func (m member) nothingLeft(ctx context.Context) error {
	all, err := m.client.Get(ctx, "\x00", clientv3.WithFromKey(), clientv3.WithKeysOnly(), clientv3.WithLimit(1))
	if err != nil {
		return fmt.Errorf("count the keys through %s: %w", m.name, err)
	}
	if all.Count > 0 {
		return fmt.Errorf("%s has %d keys, %q among them", m.name, all.Count, all.Kvs[0].Key)
	}
	leases, err := m.client.Leases(ctx)
	if err != nil {
		return fmt.Errorf("leases of %s: %w", m.name, err)
	}
	watchers, err := m.watchers(ctx)
	if err != nil {
		return err
	}
	alarms, err := m.client.AlarmList(ctx)
	if err != nil {
		return fmt.Errorf("alarms of %s: %w", m.name, err)
	}
	if n := len(leases.Leases); n > 0 || watchers > 0 || len(alarms.Alarms) > 0 {
		return fmt.Errorf("%s has %d leases, %d watchers, %d alarms", m.name, n, watchers, len(alarms.Alarms))
	}
	return nil
}

// Settings returns the members as each of them sees them. All else is on their command lines.
func (s *service) Settings(ctx context.Context) (map[string]string, error) {
	out := map[string]string{}
	for _, m := range s.members {
		list, err := m.client.MemberList(ctx)
		if err != nil {
			return nil, fmt.Errorf("members according to %s: %w", m.name, err)
		}
		out[m.name+" cluster"] = fmt.Sprintf("%x", list.Header.ClusterId)
		for _, known := range list.Members {
			out[m.name+" member "+known.Name] = fmt.Sprintf("%x at %s, learner %t", known.ID,
				strings.Join(known.PeerURLs, " "), known.IsLearner)
		}
	}
	return out, nil
}
