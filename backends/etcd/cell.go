package etcd

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockquake/lockquake/lock"
)

// cell is the content of the keys of one chubby lock, all below its path:
//
//	generation     no lease. Put whenever the lock goes from free to held: its mod revision is the lock's generation,
//	               the fencing token, which all sharing holders have in common.
//	held/LEASE     under the session's lease: the session holds the lock. Goes with the session.
//	mark/x/LEASE   no lease. Put and deleted together with held/LEASE, in exclusive mode (mark/s/LEASE in shared).
//	               Marks keep other users out. A dead session leaves a mark without its held key. That mark is then
//	               put under a lease of the length of the lock-delay, and goes with that.
type cell struct {
	path       string
	generation int64
	held       map[string]*mvccpb.KeyValue // by lease
	marks      []*mvccpb.KeyValue
}

// keys are the keys of one session that asks in one mode.
type keys struct {
	mode             lock.Mode
	all, generation  string
	held, mark       string
	exclusive, marks string // prefixes
}

var modeLetter = map[lock.Mode]string{lock.Exclusive: "x", lock.Shared: "s"}

func leaseText(id clientv3.LeaseID) string { return strconv.FormatInt(int64(id), 16) }

func keysOf(path string, mode lock.Mode, lease clientv3.LeaseID) keys {
	all := path + "/"
	return keys{
		mode: mode, all: all, generation: all + "generation",
		held: all + "held/" + leaseText(lease), mark: all + "mark/" + modeLetter[mode] + "/" + leaseText(lease),
		marks: all + "mark/", exclusive: all + "mark/" + modeLetter[lock.Exclusive] + "/",
	}
}

// nothing is true if no key begins with the prefix.
func nothing(prefix string) clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(prefix), "=", 0).WithPrefix()
}

// take returns the transaction that takes the lock, or else reads the whole cell.
func (k keys) take(t clientv3.Txn, owner string, lease clientv3.LeaseID) clientv3.Txn {
	// The generation comes first: generationOf reads the first answer.
	free, next := nothing(k.marks), clientv3.OpPut(k.generation, k.mode.String())
	if k.mode == lock.Shared {
		free = nothing(k.exclusive)
		next = clientv3.OpTxn([]clientv3.Cmp{nothing(k.marks)}, []clientv3.Op{next},
			[]clientv3.Op{clientv3.OpGet(k.generation)})
	}
	return t.If(free, clientv3.Compare(clientv3.CreateRevision(k.held), "=", 0)).
		Then(next, clientv3.OpPut(k.mark, owner), clientv3.OpPut(k.held, owner, clientv3.WithLease(lease))).
		Else(clientv3.OpGet(k.all, clientv3.WithPrefix()))
}

// generationOf returns the generation from the answer to take: the existing one if the lock is already shared,
// otherwise this transaction's.
func generationOf(resp *clientv3.TxnResponse) int64 {
	if resp.Succeeded {
		if inner := resp.Responses[0].GetResponseTxn(); inner != nil && !inner.Succeeded {
			if kvs := inner.Responses[0].GetResponseRange().GetKvs(); len(kvs) > 0 {
				return kvs[0].ModRevision
			}
		}
	}
	return resp.Header.Revision
}

// cellOf sorts the keys of a lock.
func cellOf(path string, kvs []*mvccpb.KeyValue) cell {
	c := cell{path: path, held: map[string]*mvccpb.KeyValue{}}
	for _, kv := range kvs {
		key := strings.TrimPrefix(string(kv.Key), path+"/")
		switch lease, isHeld := strings.CutPrefix(key, "held/"); {
		case isHeld:
			c.held[lease] = kv
		case key == "generation":
			c.generation = kv.ModRevision
		case strings.HasPrefix(key, "mark/"):
			c.marks = append(c.marks, kv)
		}
	}
	return c
}

// readCell reads the keys of a lock, all at one revision.
func readCell(ctx context.Context, kv clientv3.KV, path string) (cell, error) {
	resp, err := kv.Get(ctx, path+"/", clientv3.WithPrefix())
	if err != nil {
		return cell{}, fmt.Errorf("get %s/: %w", path, err)
	}
	return cellOf(path, resp.Kvs), nil
}

// split returns the session and the mode of a mark.
func (c cell) split(mark *mvccpb.KeyValue) (mode lock.Mode, lease string) {
	letter, lease, _ := strings.Cut(strings.TrimPrefix(string(mark.Key), c.path+"/mark/"), "/")
	if letter == modeLetter[lock.Shared] {
		mode = lock.Shared
	}
	return mode, lease
}

// holders returns the held keys that have a mark, the oldest first.
func (c cell) holders() []*mvccpb.KeyValue {
	var out []*mvccpb.KeyValue
	for _, m := range c.marks {
		if _, lease := c.split(m); c.held[lease] != nil {
			out = append(out, c.held[lease])
		}
	}
	slices.SortFunc(out, func(a, b *mvccpb.KeyValue) int { return int(a.CreateRevision - b.CreateRevision) })
	return out
}

// dead returns the marks that dead sessions left behind and whose lock-delay has not begun.
func (c cell) dead() []*mvccpb.KeyValue {
	var out []*mvccpb.KeyValue
	for _, m := range c.marks {
		if _, lease := c.split(m); m.Lease == 0 && c.held[lease] == nil {
			out = append(out, m)
		}
	}
	return out
}

// taken describes the holders that keep others out.
func (c cell) taken() string {
	n := len(c.holders())
	return fmt.Sprintf("%d sessions hold it, %d dead ones did", n, len(c.marks)-n)
}

// delay begins the lock-delay of a mark that a dead session left behind. Without a lock-delay it deletes the mark. It
// is no error if another user was quicker.
func (s *session) delay(ctx context.Context, path string, mark *mvccpb.KeyValue) error {
	key := string(mark.Key)
	_, lease := cell{path: path}.split(mark)
	same := []clientv3.Cmp{
		clientv3.Compare(clientv3.ModRevision(key), "=", mark.ModRevision),
		clientv3.Compare(clientv3.CreateRevision(path+"/held/"+lease), "=", 0),
	}
	length := s.conn.params.LockDelay
	if length == 0 {
		_, err := s.commit(ctx, func(t clientv3.Txn) clientv3.Txn { return t.If(same...).Then(clientv3.OpDelete(key)) })
		return err
	}
	bounded, done := context.WithTimeout(ctx, s.conn.params.Timeout)
	defer done()
	granted, err := s.conn.client.Grant(bounded, int64(length/time.Second))
	if err != nil {
		return fmt.Errorf("lease grant: %w", err)
	}
	s.conn.leases.forget(int64(granted.ID)) // no grant relies on it
	resp, err := s.commit(ctx, func(t clientv3.Txn) clientv3.Txn {
		return t.If(same...).Then(clientv3.OpPut(key, "delay", clientv3.WithLease(granted.ID)))
	})
	if err == nil && !resp.Succeeded {
		_, _ = s.conn.client.Revoke(bounded, granted.ID) // if that fails, it expires by itself
	}
	return err
}

// checkSequencer asks etcd whether the chubby lock at the path is still held as the sequencer says: in that mode and
// generation, by at least one living session. It returns lock.ErrNotHeld if not; after any other error it is unknown.
// A resource calls it before it acts. It cannot see what happens between the answer and the act, so Burrows also has
// it compare with the latest sequencer it has seen.
func checkSequencer(ctx context.Context, kv clientv3.KV, path string, q lock.Sequencer) error {
	c, err := readCell(ctx, kv, path)
	if err != nil {
		return err
	}
	if c.generation != int64(q.Generation) {
		return fmt.Errorf("%w: %s is in generation %d, the sequencer's is %d", lock.ErrNotHeld, q.Lock, c.generation,
			q.Generation)
	}
	for _, m := range c.marks {
		if mode, lease := c.split(m); mode == q.Mode && c.held[lease] != nil {
			return nil
		}
	}
	return fmt.Errorf("%w: %s is no longer held in %s mode", lock.ErrNotHeld, q.Lock, q.Mode)
}
