package etcd

import (
	"context"
	"fmt"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// keyspace is where locks are kept: below a prefix, or "" for the package's own.
type keyspace string

// at returns the path of everything about a lock. Lock names contain no "/".
func (k keyspace) at(name string) string {
	if k == "" {
		return "lockquake/" + name
	}
	return string(k) + name
}

// ready is the key that Ready writes; no lock is kept there.
func (k keyspace) ready() string {
	if k == "" {
		return "lockquake-ready"
	}
	return string(k) + "/ready"
}

// none is the answer of a fact about something that does not exist.
const none = "none"

// records describes what a kind of lock writes into etcd, for the facts and the description.
type records struct {
	recipe string // where the recipe runs
	waits  string // how a user waits
	// holder returns the id of the grant that holds the lock at a path, or none.
	holder func(ctx context.Context, kv clientv3.KV, path string) (string, error)
	// waiters returns the number of waiters; nil if they leave no trace in the store.
	waiters func(ctx context.Context, kv clientv3.KV, path string) (int, error)
}

// recordsOf returns the records of the named lock; "" is the default one.
func recordsOf(name string) records {
	const inClient = "runs in the client"
	switch name {
	case "txn":
		return records{
			recipe: inClient, waits: "waiters watch the one key; all of them retry when it is deleted",
			holder: func(ctx context.Context, kv clientv3.KV, path string) (string,
				error,
			) {
				return first(ctx, kv, path)
			},
		}
	case "chubby":
		return records{
			recipe: inClient, waits: "waiters watch the lock's keys; all of them retry when one is deleted",
			holder: chubbyHolders,
		}
	case "v3lock", "v3lock-blind":
		return records{
			recipe: "runs in the server", waits: "the server's waiters watch the previous key",
			holder: queueHead, waiters: queueLength,
		}
	default:
		return records{
			recipe: inClient, waits: "waiters watch the previous key", holder: queueHead,
			waiters: queueLength,
		}
	}
}

// queueHead reads the oldest of the keys with which sessions queue.
func queueHead(ctx context.Context, kv clientv3.KV, path string) (string, error) {
	return first(ctx, kv, path+"/", clientv3.WithFirstCreate()...)
}

// first returns the id of the grant of the first key found.
func first(ctx context.Context, kv clientv3.KV, key string, opts ...clientv3.OpOption) (string, error) {
	resp, err := kv.Get(ctx, key, opts...)
	if err != nil {
		return "", fmt.Errorf("get %s: %w", key, err)
	}
	if len(resp.Kvs) == 0 {
		return none, nil
	}
	return grantID(string(resp.Kvs[0].Key), resp.Kvs[0].CreateRevision), nil
}

// queueLength counts the keys behind the head of the queue.
func queueLength(ctx context.Context, kv clientv3.KV, path string) (int, error) {
	resp, err := kv.Get(ctx, path+"/", clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		return 0, fmt.Errorf("queue of %s: %w", path, err)
	}
	return max(0, int(resp.Count)-1), nil
}

// chubbyHolders returns all holders of the lock: one exclusive holder, or any number of sharing ones.
func chubbyHolders(ctx context.Context, kv clientv3.KV, path string) (string, error) {
	c, err := readCell(ctx, kv, path)
	if err != nil {
		return "", err
	}
	var ids []string
	for _, h := range c.holders() {
		ids = append(ids, grantID(string(h.Key), h.CreateRevision))
	}
	if len(ids) == 0 {
		return none, nil
	}
	return strings.Join(ids, ","), nil
}
