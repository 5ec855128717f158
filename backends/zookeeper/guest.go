package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/lockquake/lockquake/backends/topology"
)

var _ topology.Guest = (*service)(nil)

// checkGuest requires the timing settings of an external ensemble instead of guessing them. Every validity depends on
// how long a server may answer pings without its leader, and no server tells a client that.
func checkGuest(c topology.Common, p Params) error {
	if c.Attached == nil {
		return nil
	}
	under := c.Attached.Under
	switch {
	case len(under) < 3 || under[0] != '/' || !strings.HasSuffix(under, "/") ||
		strings.HasPrefix(under, "/zookeeper/") || strings.Contains(under, "//"):
		return fmt.Errorf("prefix is %q; it must be a path with a slash at its end such as /bench/, and not below /zookeeper", under)
	case p.TickTime == 0 || p.SyncLimit == 0:
		return errors.New("tick_time and sync_limit are missing; give the tickTime and syncLimit of the attached " +
			"ensemble, such as --set backend.tick_time=2s --set backend.sync_limit=5")
	}
	return nil
}

// Vacant opens a session at every server and looks for nodes below the path. It notes which nodes of the path are
// missing.
func (s *service) Vacant(ctx context.Context) (string, error) {
	under := strings.TrimSuffix(s.common.Attached.Under, "/")
	for i, m := range s.members {
		err := m.visit(ctx, func(v *session) error {
			if i > 0 {
				return nil
			}
			s.made = nil
			for path := under; path != ""; path = path[:strings.LastIndex(path, "/")] {
				children, err := ask(ctx, v, func(c *zk.Conn) ([]string, error) {
					list, _,
						err := c.Children(path)
					return list, err
				})
				switch {
				case errors.Is(err, zk.ErrNoNode):
					s.made = append(s.made, path)
				case err != nil:
					return fmt.Errorf("children of %s: %w", path, err)
				case path == under && len(children) > 0:
					return topology.Occupied("node " + path + "/" + children[0])
				}
			}
			return nil
		})
		if err != nil {
			return "", fmt.Errorf("%s: %w", m.address, err)
		}
	}
	return "", nil
}

// Remove removes the run's nodes, and those above them that it created.
func (s *service) Remove(ctx context.Context, _ []string) (said string, err error) {
	for _, m := range s.members {
		removed := 0
		err = m.visit(ctx, func(v *session) (err error) {
			if removed, err = removeBelow(ctx, v, s.keys.root()); err != nil {
				return err
			}
			for _, path := range s.made {
				_, err := ask(ctx, v, func(c *zk.Conn) (struct{}, error) { return struct{}{}, c.Delete(path, -1) })
				switch {
				case err == nil:
					removed++
				case errors.Is(err, zk.ErrNoNode):
				case errors.Is(err, zk.ErrNotEmpty):
					return nil // another user has begun to use it
				default:
					return fmt.Errorf("delete %s: %w", path, err)
				}
			}
			return nil
		})
		if err == nil {
			return fmt.Sprintf("%d nodes, %s and below", removed, s.keys.root()), nil
		}
	}
	return "", err
}
