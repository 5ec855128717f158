package etcd

import (
	"context"
	"fmt"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// keyspace is where locks are kept: below a prefix, or "" for the package's own.
type keyspace string

// at is where everything about a lock is kept. No lock has a name with a "/" in it.
func (k keyspace) at(name string) string {
	if k == "" {
		return "lockquake/" + name
	}
	return string(k) + name
}

// ready is written by Ready; no lock is kept there.
func (k keyspace) ready() string {
	if k == "" {
		return "lockquake-ready"
	}
	return string(k) + "/ready"
}

// none is the answer of a fact about something that is not there.
const none = "none"

// records is what a kind of lock writes into etcd, for the facts and the description.
type records struct {
	recipe string // where it runs
	waits  string // how it waits
	// holder returns the id of the grant that holds the lock kept at a path, or none.
	holder func(ctx context.Context, kv clientv3.KV, path string) (string, error)
	// waiters returns the number of those who wait; nil where they leave no trace in the store.
	waiters func(ctx context.Context, kv clientv3.KV, path string) (int, error)
}

// recordsOf returns those of the named lock, "" being the default one.
func recordsOf(name string) records {
	const inClient = "runs in the client"
	switch name {
	case "txn":
		return records{
			recipe: inClient, waits: "waiters watch the one key; all of them ask again when it goes",
			holder: func(ctx context.Context, kv clientv3.KV, path string) (string,
				error,
			) {
				return first(ctx, kv, path)
			},
		}
	case "chubby":
		return records{
			recipe: inClient, waits: "waiters watch the lock's keys; all of them ask again when one goes",
			holder: chubbyHolders,
		}
	case "v3lock", "v3lock-blind":
		return records{
			recipe: "runs in the server", waits: "the server's waiters watch the key before theirs",
			holder: queueHead, waiters: queueLength,
		}
	default:
		return records{
			recipe: inClient, waits: "waiters watch the key before theirs", holder: queueHead,
			waiters: queueLength,
		}
	}
}

// queueHead reads the oldest of the keys under which sessions queue.
func queueHead(ctx context.Context, kv clientv3.KV, path string) (string, error) {
	return first(ctx, kv, path+"/", clientv3.WithFirstCreate()...)
}

// first returns the id of the grant that the first key found stands for.
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

// chubbyHolders lists all who hold the lock: one who excludes, or any number of those who share.
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
