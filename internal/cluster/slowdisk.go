package cluster

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/internal/agent"
)

var _ chaos.SyncHolder = (*Node)(nil)

// syncKey begins the keys of orders to hold syncs.
const syncKey = "syncs-"

// HoldSyncs has the agent hold the calls to fsync back of this process of the node and of each that is started after it.
func (n *Node) HoldSyncs(ctx context.Context, key string, by time.Duration) (chaos.SyncsHeld, error) {
	if n.spec.Role != Server {
		return chaos.SyncsHeld{}, chaos.Unavailable{What: string(chaos.CanHoldSyncs), Reason: n.Name() + " keeps no data"}
	}
	was, err := n.SyncsHeld(ctx)
	if err != nil {
		return was, err
	}
	args := agent.SyncsArgs{By: int64(by), Threads: n.spec.SyncThreads}
	return was, n.stand(ctx, agent.Order{Do: agent.DoSyncs, Key: syncKey + n.linkKey(key), Args: args}, nil)
}

// SyncsHeld asks the agent what it has held so far.
func (n *Node) SyncsHeld(ctx context.Context) (chaos.SyncsHeld, error) {
	if !n.Running() {
		return chaos.SyncsHeld{Gone: true}, nil
	}
	var out agent.Syncs
	err := n.order(ctx, agent.Order{Do: agent.DoSynced}, &out)
	return syncsHeld(out), err
}

// LetSyncsGo has the agent end it.
func (n *Node) LetSyncsGo(ctx context.Context, key string) (chaos.SyncsHeld, error) {
	var out agent.Syncs
	err := n.fall(ctx, syncKey+n.linkKey(key), &out)
	if !n.Running() || errors.Is(err, agent.ErrNoProcess) {
		out.Gone, err = true, nil
	}
	return syncsHeld(out), err
}

// SyncHolds is how many injections hold syncs now.
func (n *Node) SyncHolds() int {
	n.linking.Lock()
	defer n.linking.Unlock()
	count := 0
	for _, s := range n.orders {
		if strings.HasPrefix(s.order.Key, syncKey) {
			count++
		}
	}
	return count
}

func syncsHeld(s agent.Syncs) chaos.SyncsHeld {
	return chaos.SyncsHeld{
		Calls: s.Held, Holding: s.Holding, Early: s.Early, Least: time.Duration(s.Least), Traced: s.Traced, Gone: s.Gone,
	}
}
