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

// Store opens a client of the cluster that grants the locks, for a resource that keeps its data in the same cluster.
// access is what a client process gets about the service. The caller bounds each call.
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

// GrantKey returns the key of a grant and the revision at which it was created, from the grant's id.
func GrantKey(id string) (key string, revision int64, err error) {
	i := strings.LastIndexByte(id, '@')
	if i < 0 {
		return "", 0, fmt.Errorf("%q is not the id of a grant", id)
	}
	if revision, err = strconv.ParseInt(id[i+1:], 10, 64); err != nil {
		return "", 0, fmt.Errorf("%q is not the id of a grant: %w", id, err)
	}
	return id[:i], revision, nil
}
