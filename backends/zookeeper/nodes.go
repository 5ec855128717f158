package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/lockquake/lockquake/lock"
)

// create creates a node, and its parents if they are missing.
func create(ctx context.Context, s *session, path string, flags int32) (string, error) {
	for {
		made, err := ask(ctx, s, func(c *zk.Conn) (string,
			error,
		) {
			return c.Create(path, nil, flags, access(s.set.login))
		})
		if !errors.Is(err, zk.ErrNoNode) {
			return made, err
		}
		above := path[:strings.LastIndex(path, "/")]
		if above == "" {
			return "", err
		}
		if _, err := create(ctx, s, above, zk.FlagPersistent); err != nil && !errors.Is(err, zk.ErrNodeExists) {
			return "", err
		}
	}
}

// contender begins the names of the nodes in a queue; the server appends a number of so many digits.
const contender, digits = "lock-", 10

// sequence returns the number in a contender's name; ok is false for other nodes. Libraries put other text before it,
// such as a GUID.
func sequence(node string) (n int, ok bool) {
	if len(node) < digits {
		return 0, false
	}
	n, err := strconv.Atoi(node[len(node)-digits:])
	return n, err == nil && n >= 0
}

// queue sorts the contenders among a lock's nodes by their numbers.
func queue(nodes []string) []string {
	var out []string
	for _, n := range nodes {
		if _, ok := sequence(n); ok {
			out = append(out, n)
		}
	}
	slices.SortFunc(out, func(a, b string) int {
		m, _ := sequence(a)
		n, _ := sequence(b)
		return m - n
	})
	return out
}

// errGone means that a waiter's own node no longer exists.
var errGone = fmt.Errorf("%w: the waiter's node is gone", lock.ErrLost)

// ahead returns the contender just before own, "" for the first.
func ahead(nodes []string, own string) (string, error) {
	sorted := queue(nodes)
	i := slices.Index(sorted, own)
	switch {
	case i < 0:
		return "", errGone
	case i == 0:
		return "", nil
	}
	return sorted[i-1], nil
}

// woken waits for a watch's notification.
func woken(ctx context.Context, s *session, events <-chan zk.Event) error {
	select {
	case e := <-events:
		return e.Err
	case <-ctx.Done():
		return ctx.Err()
	case <-s.over:
		return s.reason()
	}
}

// check looks for the node of a grant, with a read that has seen all writes before it.
func (u *user) check(ctx context.Context, g lock.Grant) error {
	h, ok := u.held[g.ID]
	if !ok {
		return fmt.Errorf("%w: this user has no grant %s", lock.ErrNotHeld, g.ID)
	}
	if err := h.session.reason(); err != nil {
		return h.ended(ctx, err)
	}
	stat, err := ask(ctx, h.session, func(c *zk.Conn) (*zk.Stat, error) {
		if _, err := c.Sync(h.path); err != nil && !errors.Is(err, zk.ErrNoNode) {
			return nil, err
		}
		exists, stat, err := c.Exists(h.path)
		if err == nil && !exists {
			err = zk.ErrNoNode
		}
		return stat, err
	})
	switch {
	case errors.Is(err, zk.ErrNoNode), errors.Is(err, zk.ErrSessionExpired), errors.Is(err, errExpired):
		return fmt.Errorf("%w: %w", lock.ErrNotHeld, err)
	case err != nil:
		return fmt.Errorf("zookeeper exists %s: %w", h.path, err)
	case lock.Token(stat.Czxid) != g.Token:
		return fmt.Errorf("%w: %s is another node", lock.ErrNotHeld, h.path)
	}
	return nil
}
