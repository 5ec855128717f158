package cluster

import (
	"context"
	"fmt"
	"slices"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
)

func (r *dockerRun) logs() *logbook { return r.book }

// vacate ends the node's process. The container of our own binary stays, for renew to look at; any other is removed.
func (r *dockerRun) vacate(ctx context.Context, n *Node) error {
	c := n.driver.(*containerNode)
	if c.spec.Image != SelfProgram {
		return r.discard(ctx, c)
	}
	if n.Running() {
		_, err := r.api.ContainerKill(ctx, c.box.GetContainerID(), client.ContainerKillOptions{Signal: "SIGKILL"})
		if err != nil && !cerrdefs.IsConflict(err) { // a conflict: it has just ended by itself
			return fmt.Errorf("kill its container: %w", err)
		}
		select {
		case <-n.Exited():
		case <-ctx.Done():
			return fmt.Errorf("its process does not end: %w", ctx.Err())
		}
	}
	r.stopStreams(n.Name())
	return nil
}

// discard removes a container.
func (r *dockerRun) discard(ctx context.Context, c *containerNode) error {
	id := c.box.GetContainerID()
	if err := removeContainer(ctx, r.api, id); err != nil {
		return err
	}
	r.locked(func() { r.containers = slices.DeleteFunc(r.containers, func(known string) bool { return known == id }) })
	r.stopStreams(c.spec.Name)
	return nil
}

func (r *dockerRun) stopStreams(node string) {
	var stopping []func()
	r.locked(func() {
		stopping = r.stopping[node]
		delete(r.stopping, node)
	})
	for _, stop := range stopping {
		stop()
	}
}

// renew makes a node with the name and address of the one before it. A container of our own binary is started again where nothing was
// written into it: the engine gives it another process, in other namespaces, and what it sees of files is as it was. That is twice as
// quick as another container.
func (r *dockerRun) renew(ctx context.Context, index int, spec Spec) (*Node, error) {
	old := r.nodes[index].driver.(*containerNode)
	if spec.Image != SelfProgram {
		return r.newNode(ctx, spec)
	}
	if !r.untouched(ctx, old) {
		if err := r.discard(ctx, old); err != nil {
			return nil, err
		}
		return r.newNode(ctx, spec)
	}
	n := &Node{spec: spec, place: r.place.of(spec.Name, dataDir)}
	n.driver = &containerNode{run: r, spec: spec, node: n, box: old.box, limits: old.limits, fitting: old.fitting}
	return n, nil
}

// untouched asks the engine whether a container's files are those of its image; the empty data directory is the engine's own work.
func (r *dockerRun) untouched(ctx context.Context, c *containerNode) bool {
	diff, err := r.api.ContainerDiff(ctx, c.box.GetContainerID(), client.ContainerDiffOptions{})
	return err == nil && !slices.ContainsFunc(diff.Changes, func(f container.FilesystemChange) bool { return f.Path != dataDir })
}
