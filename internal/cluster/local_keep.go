package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

func (r *localRun) logs() *logbook { return r.book }

// vacate ends the node's process and removes its data. Its network namespace stays.
func (r *localRun) vacate(ctx context.Context, n *Node) error {
	if err := n.driver.(*process).end(ctx); err != nil {
		return err
	}
	if err := os.RemoveAll(filepath.Join(r.dir, n.Name())); err != nil {
		return fmt.Errorf("remove its data: %w", err)
	}
	return nil
}

// renew makes a node in the namespace, and in the control group, of the one before it.
func (r *localRun) renew(ctx context.Context, index int, spec Spec) (*Node, error) {
	n, p, err := r.newNode(ctx, index, spec)
	if err != nil {
		return nil, err
	}
	p.group = r.nodes[index].driver.(*process).group
	return n, nil
}
