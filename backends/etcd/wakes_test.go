package etcd

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc"
)

// told is a stream with prepared messages.
type told struct {
	grpc.ClientStream
	messages []*pb.WatchResponse
}

func (s *told) RecvMsg(m any) error {
	if len(s.messages) == 0 {
		return io.EOF
	}
	r := m.(*pb.WatchResponse)
	r.Created, r.Canceled, r.Events = s.messages[0].Created, s.messages[0].Canceled, s.messages[0].Events
	s.messages = s.messages[1:]
	return nil
}

// A message with events counts as a wake-up; a message about the watch itself does not.
func TestWakesAreMessagesWithEvents(t *testing.T) {
	event := []*mvccpb.Event{{Type: mvccpb.Event_DELETE}}
	w := &wakes{}
	open := func(context.Context, *grpc.StreamDesc, *grpc.ClientConn, string, ...grpc.CallOption) (grpc.ClientStream, error) {
		return &told{messages: []*pb.WatchResponse{{Created: true}, {Events: event}, {Events: append(event, event...)}, {Canceled: true}}}, nil
	}
	for _, method := range []string{watchMethod, keepAliveMethod} {
		s, err := w.stream(t.Context(), nil, nil, method, open)
		if err != nil {
			t.Fatal(err)
		}
		for err == nil {
			err = s.RecvMsg(&pb.WatchResponse{})
		}
	}
	if n := w.count.Load(); n != 2 {
		t.Errorf("%d were woken, want 2", n)
	}
}

func TestRequestsAreSummedUp(t *testing.T) {
	for text, want := range map[string]int64{
		"# TYPE grpc_server_msg_received_total counter\n" +
			"grpc_server_msg_received_total{grpc_method=\"Put\",grpc_type=\"unary\"} 3\n" +
			"grpc_server_msg_received_total{grpc_method=\"Watch\",grpc_type=\"bidi_stream\"} 1.5e+02\n" +
			"grpc_server_msg_sent_total{grpc_method=\"Put\"} 1000\n": 153,
		"grpc_server_msg_sent_total{grpc_method=\"Put\"} 1000\n":     -1,
		"grpc_server_msg_received_total{grpc_method=\"Put\"} many\n": -1,
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/metrics" {
				_, _ = io.WriteString(w, text)
			}
		}))
		n, err := member{place: place{name: "etcd-1", addr: strings.TrimPrefix(s.URL, "http://")}, web: s.Client()}.requests(t.Context())
		s.Close()
		if err != nil {
			n = -1
		}
		if n != want {
			t.Errorf("%q: %d, want %d (%v)", text, n, want, err)
		}
	}
}
