package etcd

import (
	"context"
	"sync/atomic"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
)

const watchMethod = "/etcdserverpb.Watch/Watch"

// wakes counts the events that the watches of one client received. It reads them from the client library's messages:
// each message is for one watch, however many share the stream.
type wakes struct{ count atomic.Int64 }

// stream wraps the streams of watches.
func (w *wakes) stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string,
	open grpc.Streamer, opts ...grpc.CallOption,
) (grpc.ClientStream, error) {
	s, err := open(ctx, desc, cc, method, opts...)
	if err != nil || method != watchMethod {
		return s, err
	}
	return &watchStream{ClientStream: s, wakes: w}, nil
}

type watchStream struct {
	grpc.ClientStream
	wakes *wakes
}

// RecvMsg counts the messages that carry events.
func (s *watchStream) RecvMsg(m any) error {
	if err := s.ClientStream.RecvMsg(m); err != nil {
		return err
	}
	if r, ok := m.(*pb.WatchResponse); ok && len(r.GetEvents()) > 0 {
		s.wakes.count.Add(1)
	}
	return nil
}
