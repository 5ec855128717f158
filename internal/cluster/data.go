package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/internal/agent"
)

var _ chaos.DataHolder = (*Node)(nil)

// dataKeys makes the keys of directories that the agent holds.
var dataKeys atomic.Int64

// HoldData opens the node's data directory: that of its Place, a volume (docker) or a directory of the run (local).
func (n *Node) HoldData(ctx context.Context) (chaos.Data, error) {
	if n.spec.Role != Server {
		return nil, chaos.Unavailable{What: string(chaos.CanData), Reason: n.Name() + " keeps no data"}
	}
	a, err := n.reach(ctx)
	if err != nil {
		if _, ours := n.driver.(*process); !ours {
			return nil, err
		}
		d, err := agent.OpenDirectory(n.place.Dir)
		if err != nil {
			return nil, err
		}
		return ownData{n, d}, nil
	}
	d := agentData{agent: a.agent, process: a.process, key: fmt.Sprintf("data-%d/%s", dataKeys.Add(1), n.Name())}
	if _, err := d.order(ctx, agent.DataArgs{Act: agent.DataHold, Dir: n.place.Dir}); err != nil {
		return nil, errors.Join(fmt.Errorf("data of %s: %w", n.Name(), err), d.Release(ctx))
	}
	return d, nil
}

// agentData is a directory that the agent holds open.
type agentData struct {
	agent   *agent.Client
	process agent.Process
	key     string
}

func (d agentData) order(ctx context.Context, args agent.DataArgs) (agent.Listing, error) {
	var out agent.Listing
	err := d.agent.Order(ctx, agent.Order{Do: agent.DoData, Process: d.process, Key: d.key, Args: args}, &out)
	return out, err
}

func (d agentData) List(ctx context.Context) (chaos.DataListing, error) {
	l, err := d.order(ctx, agent.DataArgs{Act: agent.DataList})
	return listed(l), err
}

func (d agentData) Lose(ctx context.Context) error {
	_, err := d.order(ctx, agent.DataArgs{Act: agent.DataEmpty})
	return err
}

func (d agentData) Release(ctx context.Context) error { return d.agent.Undo(ctx, d.key, nil) }

// ownData is a directory that the supervisor itself can open: it has children and no agent.
type ownData struct {
	node *Node
	*agent.Directory
}

func (d ownData) List(context.Context) (chaos.DataListing, error) {
	l, err := d.Directory.List()
	return listed(l), err
}

func (d ownData) Lose(context.Context) error {
	if d.node.Running() {
		return fmt.Errorf("%s still runs: its data is not taken from under it", d.node.Name())
	}
	return d.Empty()
}

func (d ownData) Release(context.Context) error { return d.Close() }

func listed(l agent.Listing) chaos.DataListing {
	return chaos.DataListing{Entries: l.Entries, Bytes: l.Bytes, ID: l.ID}
}
