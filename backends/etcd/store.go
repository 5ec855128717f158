package etcd

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockquake/lockquake/backends"
)

// Store opens a client of the cluster that grants the locks, for one who keeps in it what they protect too. access is
// what a client process is told of the service; each call is bounded by its caller.
func Store(ctx context.Context, access json.RawMessage) (*clientv3.Client, error) {
	var a backends.Access
	if err := json.Unmarshal(access, &a); err != nil {
		return nil, fmt.Errorf("access: %w", err)
	}
	c, err := dial(ctx, a)
	if err != nil {
		return nil, err
	}
	return c.client, nil
}

// GrantKey returns the key that stands for a grant, of the grant's id, and the revision at which that key was made.
func GrantKey(id string) (key string, revision int64, err error) {
	i := strings.LastIndexByte(id, '@')
	if i < 0 {
		return "", 0, fmt.Errorf("%q is the id of no grant", id)
	}
	if revision, err = strconv.ParseInt(id[i+1:], 10, 64); err != nil {
		return "", 0, fmt.Errorf("%q is the id of no grant: %w", id, err)
	}
	return id[:i], revision, nil
}
