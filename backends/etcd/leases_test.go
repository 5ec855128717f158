package etcd

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/lock"
)

// TestLeaseGrantCountsFromTheRequest uses a late answer, and answers that promise nothing.
func TestLeaseGrantCountsFromTheRequest(t *testing.T) {
	const id = 7
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		method, refusal string
		err             error
		promised        bool
	}{
		"granted":        {grantMethod, "", nil, true},
		"refused":        {grantMethod, "no space", nil, false},
		"broken":         {grantMethod, "", broken, false},
		"something else": {"/etcdserverpb.KV/Put", "", nil, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			ls := newLeases()
			sent := time.Now()
			err := ls.unary(t.Context(), c.method, nil, &pb.LeaseGrantResponse{}, nil,
				func(_ context.Context, _ string, _, reply any, _ *grpc.ClientConn, _ ...grpc.CallOption) error {
					time.Sleep(600 * time.Millisecond)
					r := reply.(*pb.LeaseGrantResponse)
					r.ID, r.TTL, r.Error = id, 2, c.refusal
					return c.err
				})
			want := lock.Unknown()
			if c.promised {
				want = backends.Validity(sent, 2*time.Second)
			}
			if v, _ := ls.validity(id); v != want || !errors.Is(err, c.err) {
				t.Errorf("%s: %+v, %v; want %+v", name, v, err, want)
			}
		})
	}
}

// TestKeepAliveIsReported: only the stream of keep-alives is read.
func TestKeepAliveIsReported(t *testing.T) {
	ls := newLeases()
	open := func(context.Context, *grpc.StreamDesc, *grpc.ClientConn, string, ...grpc.CallOption) (grpc.ClientStream, error) {
		return &scripted{answers: []*pb.LeaseKeepAliveResponse{{ID: 7, TTL: 2}}}, nil
	}
	if s, err := ls.stream(t.Context(), nil, nil, watchMethod, open); err != nil || s == nil {
		t.Fatal(err)
	} else if _, looks := s.(*keepAlives); looks {
		t.Error("a watch is taken for keep-alives")
	}
	s, err := ls.stream(t.Context(), nil, nil, keepAliveMethod, open)
	if err != nil {
		t.Fatal(err)
	}
	ls.promise(7, time.Now().Add(-time.Second), 2)
	before, changed := ls.validity(7)
	if err := s.SendMsg(&pb.LeaseKeepAliveRequest{ID: 7}); err != nil {
		t.Fatal(err)
	}
	if err := s.RecvMsg(&pb.LeaseKeepAliveResponse{}); err != nil {
		t.Fatal(err)
	}
	select {
	case <-changed:
	default:
		t.Error("nobody is told of the keep-alive")
	}
	if after, _ := ls.validity(7); after == before {
		t.Error("the keep-alive did not move the validity")
	}
}
