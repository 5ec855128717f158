// Package etcd keeps what locks protect in the same etcd that grants the locks.
package etcd

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockquake/lockquake/backends/etcd"
	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/internal/node"
	"github.com/lockquake/lockquake/internal/wire"
	"github.com/lockquake/lockquake/lock"
	"github.com/lockquake/lockquake/workloads/resource"
)

const name = "etcd"

// Kind describes the etcd that grants the locks, with a key for each value and one for each effect. One transaction
// contains the read or write, its log line and the guard's check of the lock's key.
func Kind() resource.Kind {
	return resource.Kind{
		Name: name,
		Doc:  "The etcd that grants the locks: a key for each lock's value, read and written by transactions that also keep the log.",
		Guards: []resource.Guard{
			{Name: resource.GuardNone, Doc: "refuses nothing"},
			{
				Name: resource.GuardLockKey, Token: true,
				Doc: "refuses a read or write if the lock's key is gone, or has another create revision than the grant",
			},
		},
		Within: "etcd",
		Specs:  func() []node.Spec { return []node.Spec{resource.LedgerSpec(name)} },
		Dial:   dial,
		Book:   func() resource.Book { return &book{} },
	}
}

// Prefixes of values and effects, away from the records of locks.
const (
	cellPrefix   = "lockquake-cells/"
	effectPrefix = "lockquake-effects/"
)

// effect is a line of the log. etcd orders the lines by revision, but does not date them. Sent is when the user sent
// the transaction, on the run's clock.
type effect struct {
	Sent  int64  `json:"sent"`
	Lock  string `json:"lock"`
	User  string `json:"user"`
	Grant uint32 `json:"grant"`
	Token uint64 `json:"token,omitempty"`
	Write bool   `json:"write,omitempty"`
	OK    bool   `json:"ok,omitempty"`
	Value int64  `json:"value,omitempty"` // the value to write
}

// link is a user's connection.
type link struct {
	guard  string
	client *clientv3.Client
	made   int // number of transactions
}

func dial(ctx context.Context, t resource.Target) (resource.Connection, error) {
	c, err := etcd.Store(ctx, t.Access)
	if err != nil {
		return nil, err
	}
	return &link{guard: t.Guard, client: c}, nil
}

// Read reads the value that a lock protects.
func (l *link) Read(ctx context.Context, a resource.Access) (int64, error) {
	resp, err := l.do(ctx, a, effect{}, clientv3.OpGet(cellPrefix+a.Lock))
	if err != nil {
		return 0, err
	}
	kvs := resp.Responses[0].GetResponseRange().GetKvs()
	if len(kvs) == 0 {
		return 0, nil
	}
	return strconv.ParseInt(string(kvs[0].Value), 10, 64)
}

// Write writes that value.
func (l *link) Write(ctx context.Context, a resource.Access, value int64) error {
	_, err := l.do(ctx, a, effect{Write: true, Value: value},
		clientv3.OpPut(cellPrefix+a.Lock, strconv.FormatInt(value, 10)))
	return err
}

// do makes one transaction: the access, if the guard passes it, and its log line in either case. The library sends a
// writing transaction only once.
func (l *link) do(ctx context.Context, a resource.Access, e effect, access clientv3.Op) (*clientv3.TxnResponse, error) {
	e.Sent, e.Lock, e.User, e.Grant, e.Token = clock.Now(), a.Lock, a.User.String(), a.Grant, uint64(a.Token)
	refused, err := json.Marshal(e)
	if err != nil {
		return nil, err
	}
	e.OK = true
	applied, err := json.Marshal(e)
	if err != nil {
		return nil, err
	}
	l.made++
	line := fmt.Sprintf("%s%s/%d", effectPrefix, a.User, l.made)
	txn := l.client.Txn(ctx)
	if l.guard == resource.GuardLockKey {
		key, revision, err := etcd.GrantKey(a.Owner)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", resource.ErrFenced, err)
		}
		txn = txn.If(clientv3.Compare(clientv3.CreateRevision(key), "=", revision))
	}
	resp, err := txn.Then(access, clientv3.OpPut(line, string(applied))).Else(clientv3.OpPut(line,
		string(refused))).Commit()
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, fmt.Errorf("etcd: %w", context.Cause(ctx))
	case err != nil:
		return nil, fmt.Errorf("etcd: %w", err)
	case !resp.Succeeded:
		return nil, resource.Fenced(lock.Reason{Cause: lock.CauseKeyGone}, "the lock's key is gone or was replaced")
	}
	return resp, nil
}

// Close closes the connection.
func (l *link) Close() error { return l.client.Close() }

// book reads the log. Nothing needs to be created: missing keys mean 0.
type book struct {
	client *clientv3.Client
	locks  []string
}

// openTimeout bounds one attempt to reach the members.
const openTimeout = 2 * time.Second

func (b *book) Open(ctx context.Context, s *wire.Start) (err error) {
	if b.client == nil {
		if b.client, err = etcd.Store(ctx, s.Access); err != nil {
			return err
		}
		b.locks = s.Locks
	}
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	_, err = b.client.Get(ctx, cellPrefix)
	return err
}

// Now returns the run's clock, because users date their transactions by it.
func (b *book) Now(context.Context) (int64, error) { return clock.Now(), nil }

func (b *book) Read(ctx context.Context) ([]resource.Entry, map[string]resource.Final, error) {
	resp, err := b.client.Get(ctx, effectPrefix, clientv3.WithPrefix(),
		clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
	if err != nil {
		return nil, nil, err
	}
	lines := make([]effect, len(resp.Kvs))
	for i, kv := range resp.Kvs {
		if err := json.Unmarshal(kv.Value, &lines[i]); err != nil {
			return nil, nil, fmt.Errorf("%s: %w", kv.Key, err)
		}
	}
	log, cells := retrace(b.locks, lines)
	for _, name := range b.locks { // the log and the values must agree
		resp, err := b.client.Get(ctx, cellPrefix+name)
		if err != nil {
			return nil, nil, err
		}
		stands := "0"
		if len(resp.Kvs) > 0 {
			stands = string(resp.Kvs[0].Value)
		}
		if told := strconv.FormatInt(cells[name].Value, 10); told != stands {
			return nil, nil, fmt.Errorf("%s holds %s, and its log ends with %s", name, stands, told)
		}
	}
	return log, cells, nil
}

// retrace follows the log in its order. Each effect gets its earliest possible time: when it was sent, but after the
// effect before it.
func retrace(locks []string, lines []effect) (log []resource.Entry, cells map[string]resource.Final) {
	cells = map[string]resource.Final{}
	for _, name := range locks {
		cells[name] = resource.Final{}
	}
	last := int64(0)
	for _, e := range lines {
		last = max(last+1, e.Sent)
		x := resource.Entry{
			At: last, Lock: e.Lock, User: e.User, Grant: e.Grant, Token: e.Token, Write: e.Write,
			OK: e.OK, Value: e.Value,
		}
		c := cells[e.Lock]
		switch {
		case e.Write && e.OK:
			cells[e.Lock] = resource.Final{Value: e.Value, Applied: c.Applied + 1}
		case !e.Write && e.OK:
			x.Value = c.Value
		}
		log = append(log, x)
	}
	return log, cells
}

func (b *book) Close() {
	if b.client != nil {
		_ = b.client.Close() // the process ends
		b.client = nil
	}
}
