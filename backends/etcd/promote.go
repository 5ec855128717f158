package etcd

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockquake/lockquake/chaos"
)

var _ chaos.Promoter = maintenance{}

// Promotes returns an error for a cluster of one.
func (x maintenance) Promotes() error {
	if x.service.nodes < 2 {
		return chaos.Unavailable{
			What:   "an orderly failover",
			Reason: "the cluster has one member; set backend.nodes to 3",
		}
	}
	return nil
}

// Promote moves the leadership (Maintenance.MoveLeader): to the node, or, if the node leads, to the most advanced
// other member.
func (x maintenance) Promote(ctx context.Context, node string) (chaos.Promotion, error) {
	states := statesOf(ctx, x.service.members, x.service.params.Timeout)
	leader := ""
	for name, st := range states {
		if st.Leader == st.Header.MemberId {
			leader = name
		}
	}
	if leader == "" {
		return chaos.Promotion{}, errors.New("no answering member is the leader")
	}
	to := node
	if leader == node {
		to = furthest(states, leader)
	}
	target, ok := states[to]
	if !ok {
		return chaos.Promotion{}, fmt.Errorf("no member except %s answers", leader)
	}
	m, err := x.service.member(leader)
	if err != nil {
		return chaos.Promotion{}, err
	}
	ctx, done := context.WithTimeout(ctx, x.service.params.Timeout)
	defer done()
	p := chaos.Promotion{From: leader, To: to, How: fmt.Sprintf("MoveLeader to %s, asked of %s", to, leader)}
	if _, err := m.client.MoveLeader(ctx, target.Header.MemberId); err != nil {
		return p, fmt.Errorf("%s: %w", p.How, err)
	}
	return p, nil
}

// furthest returns the member other than the leader that has applied most; of several, the first by name.
func furthest(states map[string]*clientv3.StatusResponse, leader string) string {
	best := ""
	for name, st := range states {
		if name == leader {
			continue
		}
		b, ok := states[best]
		if !ok || st.RaftAppliedIndex > b.RaftAppliedIndex || st.RaftAppliedIndex == b.RaftAppliedIndex && name < best {
			best = name
		}
	}
	return best
}

// statesOf asks all members at once and leaves out those that do not answer in time.
func statesOf(ctx context.Context, members []member, within time.Duration) map[string]*clientv3.StatusResponse {
	ctx, done := context.WithTimeout(ctx, within)
	defer done()
	out := map[string]*clientv3.StatusResponse{}
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, m := range members {
		all.Go(func() {
			st, err := m.client.Status(ctx, m.addr)
			if err != nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			out[m.name] = st
		})
	}
	all.Wait()
	return out
}

// Settle has nothing to do: no member has changed.
func (maintenance) Settle(context.Context, chaos.Promotion) error { return nil }
