package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockquake/lockquake/backends/topology"
)

var _ topology.Resetter = (*service)(nil)

// resetPatience is the minimum wait for sessions of clients that ended without closing them. A session cannot be
// ended from outside.
const resetPatience = 3 * time.Second

// Reset removes all nodes below the parent of all locks, and waits until the sessions of former clients are over.
func (s *service) Reset(ctx context.Context) ([]string, error) {
	if len(s.members) == 0 {
		return nil, errors.New("there are no servers")
	}
	removed := 0
	first := s.members[0]
	if err := first.visit(ctx, func(v *session) (err error) {
		removed,
			err = removeBelow(ctx, v, s.keys.root())
		return err
	}); err != nil {
		return nil, fmt.Errorf("remove the nodes of locks: %w", err)
	}
	evidence := []string{fmt.Sprintf("%d nodes of locks were removed, through %s", removed, first.name)}
	for _, m := range s.members {
		if err := m.visit(ctx, func(v *session) error { return onlyOwn(ctx, v) }); err != nil {
			return nil, err
		}
	}
	for _, m := range s.members { // now that no session is the harness's own
		if err := topology.Until(ctx, max(resetPatience, s.ttl+time.Second), m.unused); err != nil {
			return nil, err
		}
		evidence = append(evidence, m.name+
			": no node but its own, after a sync; no session, no ephemeral node, no watch (mntr)")
	}
	s.notified, _ = s.notifications(ctx)
	return evidence, nil
}

// removeBelow removes a node with everything below it, and returns the number of nodes.
func removeBelow(ctx context.Context, v *session, path string) (int, error) {
	children, err := ask(ctx, v, func(c *zk.Conn) ([]string, error) {
		if _, err := c.Sync(path); err != nil {
			return nil, err
		}
		children, _, err := c.Children(path)
		return children, err
	})
	if errors.Is(err, zk.ErrNoNode) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	removed := 0
	for _, child := range children {
		n, err := removeBelow(ctx, v, path+"/"+child)
		if removed += n; err != nil {
			return removed, err
		}
	}
	_, err = ask(ctx, v, func(c *zk.Conn) (struct{}, error) { return struct{}{}, c.Delete(path, -1) })
	if errors.Is(err, zk.ErrNoNode) { // its session had just ended
		return removed, nil
	}
	return removed + 1, err
}

// builtIn is the one node that every server creates itself.
const builtIn = "zookeeper"

// onlyOwn returns an error if there is any node that the server did not create itself.
func onlyOwn(ctx context.Context, v *session) error {
	children, err := ask(ctx, v, func(c *zk.Conn) ([]string, error) {
		if _, err := c.Sync("/"); err != nil {
			return nil, err
		}
		children, _, err := c.Children("/")
		return children, err
	})
	if err != nil {
		return err
	}
	if left := slices.DeleteFunc(children, func(n string) bool { return n == builtIn }); len(left) > 0 {
		return fmt.Errorf("there are the nodes /%s", strings.Join(left, ", /"))
	}
	return nil
}

// unused returns an error while the server knows of any session, or of anything under one.
func (m member) unused(ctx context.Context) error {
	for _, what := range []struct{ metric, text string }{
		{"zk_global_sessions", "sessions"}, {"zk_ephemerals_count", "ephemeral nodes"}, {"zk_watch_count", "watches"},
	} {
		n, err := m.metrics(ctx, what.metric)
		if err != nil {
			return err
		}
		if n > 0 {
			return fmt.Errorf("%s has %d %s", m.name, n, what.text)
		}
	}
	return nil
}

// notifications returns how many watch events all servers have sent since they started; ok is false if one does not
// report it.
func (s *service) notifications(ctx context.Context) (sum int64, ok bool) {
	for _, m := range s.members {
		ctx, done := context.WithTimeout(ctx, s.params.Timeout)
		n, err := m.notifications(ctx)
		done()
		if err != nil {
			return 0, false
		}
		sum += n
	}
	return sum, len(s.members) > 0
}

// Settings returns what the servers report about themselves and must not change while they run.
func (s *service) Settings(ctx context.Context) (map[string]string, error) {
	out := map[string]string{}
	for _, m := range s.members {
		text, err := m.word(ctx, "conf")
		if err != nil {
			return nil, err
		}
		for name, value := range configured(text) {
			out[m.name+" conf "+name] = value
		}
	}
	return out, nil
}

// configured parses the answer to "conf" and leaves out what is not a setting. The sizes of files grow with each
// write. A member adds its address for clients to its own line once it has joined the others.
func configured(text string) map[string]string {
	out := map[string]string{}
	for line := range strings.Lines(text) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), "=")
		switch {
		case !ok || name == "dataDirSize" || name == "dataLogSize":
		case strings.HasPrefix(name, "server."):
			out[name], _, _ = strings.Cut(value, ";")
		default:
			out[name] = value
		}
	}
	return out
}
