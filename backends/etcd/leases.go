package etcd

import (
	"context"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/lock"
)

// The calls that start or renew a lease.
const (
	grantMethod     = "/etcdserverpb.Lease/LeaseGrant"
	keepAliveMethod = "/etcdserverpb.Lease/LeaseKeepAlive"
)

// leases tracks how long the holder of each lease of one client may believe in it: from the send time of the grant,
// or of the last answered keep-alive. It reads that from the messages of the client library.
type leases struct {
	mu   sync.Mutex
	byID map[int64]*lease
}

// lease is the last answered promise.
type lease struct {
	sent    time.Time
	ttl     time.Duration
	changed chan struct{} // closed and replaced at each change
}

func newLeases() *leases { return &leases{byID: map[int64]*lease{}} }

// unary notes the send time of LeaseGrant. It runs within the client's retries, so that each attempt has its own.
func (ls *leases) unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn,
	invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
) error {
	if method != grantMethod {
		return invoke(ctx, method, req, reply, cc, opts...)
	}
	sent := time.Now()
	err := invoke(ctx, method, req, reply, cc, opts...)
	if r, ok := reply.(*pb.LeaseGrantResponse); ok && err == nil && r.GetError() == "" {
		ls.promise(r.GetID(), sent, r.GetTTL())
	}
	return err
}

// stream wraps the keep-alive stream.
func (ls *leases) stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string,
	open grpc.Streamer, opts ...grpc.CallOption,
) (grpc.ClientStream, error) {
	s, err := open(ctx, desc, cc, method, opts...)
	if err != nil || method != keepAliveMethod {
		return s, err
	}
	return &keepAlives{ClientStream: s, leases: ls, sent: map[int64][]time.Time{}}, nil
}

// keepAlives matches answers to requests: the server answers a stream's requests in order.
type keepAlives struct {
	grpc.ClientStream
	leases *leases

	mu   sync.Mutex
	sent map[int64][]time.Time // of unanswered requests, by lease
}

// SendMsg notes the time before the request is written.
func (k *keepAlives) SendMsg(m any) error {
	if r, ok := m.(*pb.LeaseKeepAliveRequest); ok {
		k.mu.Lock()
		k.sent[r.GetID()] = append(k.sent[r.GetID()], time.Now())
		k.mu.Unlock()
	}
	return k.ClientStream.SendMsg(m)
}

// RecvMsg uses the send time of the answered request.
func (k *keepAlives) RecvMsg(m any) error {
	if err := k.ClientStream.RecvMsg(m); err != nil {
		return err
	}
	r, ok := m.(*pb.LeaseKeepAliveResponse)
	if !ok {
		return nil
	}
	k.mu.Lock()
	queue := k.sent[r.GetID()]
	if len(queue) == 0 { // an answer without a request proves nothing
		k.mu.Unlock()
		return nil
	}
	sent := queue[0]
	if len(queue) == 1 {
		delete(k.sent, r.GetID())
	} else {
		k.sent[r.GetID()] = queue[1:]
	}
	k.mu.Unlock()
	if r.GetTTL() > 0 {
		k.leases.promise(r.GetID(), sent, r.GetTTL())
	}
	return nil
}

// promise records that the service promised, for a request sent at sent, to keep a lease for ttl seconds.
func (ls *leases) promise(id int64, sent time.Time, ttl int64) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l, ok := ls.byID[id]
	if !ok {
		l = &lease{changed: make(chan struct{})}
		ls.byID[id] = l
	}
	if sent.Before(l.sent) {
		return
	}
	l.sent, l.ttl = sent, time.Duration(ttl)*time.Second
	close(l.changed)
	l.changed = make(chan struct{})
}

// validity returns the end of the last promise, and a channel that is closed when there is a later one.
func (ls *leases) validity(id int64) (lock.Validity, <-chan struct{}) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l, ok := ls.byID[id]
	if !ok {
		return lock.Unknown(), nil
	}
	return backends.Validity(l.sent, l.ttl), l.changed
}

// forget drops a lease that is no longer used.
func (ls *leases) forget(id int64) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	delete(ls.byID, id)
}
