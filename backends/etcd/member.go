package etcd

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/lockquake/lockquake/internal/node"
)

// member is one server as the harness sees it: a client that talks to it alone.
type member struct {
	place
	client *clientv3.Client
	secure bool // by TLS
	web    *http.Client
}

func (m member) scheme() string {
	if m.secure {
		return "https://"
	}
	return "http://"
}

// place is how the harness reaches one server.
type place struct {
	name  string
	addr  string
	login node.Login
	dial  func(ctx context.Context) (net.Conn, error)
}

func newMember(p place) (member, error) {
	secure, err := p.login.TLS.Config("") // the library knows which host it dials
	if err != nil {
		return member{}, fmt.Errorf("etcd client for %s: %w", p.name, err)
	}
	c, err := clientv3.New(clientv3.Config{
		Endpoints:   []string{p.addr},
		Username:    p.login.User,
		Password:    p.login.Password,
		TLS:         secure,
		DialTimeout: loginPatience,
		Logger:      zap.NewNop(),
		// The harness retries by itself; a failed call must come back at once, not after the library's retries.
		MaxUnaryRetries: 1,
		DialOptions: []grpc.DialOption{
			// gRPC's own back-off grows to two minutes: a member that has come back would still appear to be down.
			grpc.WithConnectParams(grpc.ConnectParams{
				Backoff: backoff.Config{
					BaseDelay: 50 * time.Millisecond, Multiplier: 1.5,
					MaxDelay: 250 * time.Millisecond,
				},
				MinConnectTimeout: time.Second,
			}),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return p.dial(ctx) }),
		},
	})
	if err != nil {
		return member{}, fmt.Errorf("etcd client for %s: %w", p.name, err)
	}
	web := &http.Client{Transport: &http.Transport{
		DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return p.dial(ctx) },
		TLSClientConfig:   secure,
		DisableKeepAlives: true,
	}}
	return member{place: p, secure: secure != nil, client: c, web: web}, nil
}

// loginPatience bounds the creation of a client that must log in; without a login that makes no connection.
const loginPatience = 5 * time.Second

// clock reads the Date header.
func (m member) clock(ctx context.Context) (string, error) {
	resp, err := m.get(ctx, "/version")
	if err != nil {
		return "", fmt.Errorf("clock of %s: %w", m.name, err)
	}
	defer resp.Body.Close()
	t, err := http.ParseTime(resp.Header.Get("Date"))
	if err != nil {
		return "", fmt.Errorf("clock of %s: %w", m.name, err)
	}
	return t.UTC().Format(time.RFC3339), nil
}

// watchers returns the number of watchers in the member's metrics.
func (m member) watchers(ctx context.Context) (int, error) {
	n, err := m.metric(ctx, "etcd_debugging_mvcc_watcher_total")
	return int(n), err
}

// metric returns one number of the member's metrics.
func (m member) metric(ctx context.Context, name string) (float64, error) {
	resp, err := m.get(ctx, "/metrics")
	if err != nil {
		return 0, fmt.Errorf("metrics of %s: %w", m.name, err)
	}
	defer resp.Body.Close()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if v, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			return strconv.ParseFloat(v, 64)
		}
	}
	return 0, fmt.Errorf("the metrics of %s have no %s", m.name, name)
}

// requests returns the number of all client messages to the member: calls, and messages on the streams of watches and
// keep-alives.
func (m member) requests(ctx context.Context) (int64, error) {
	resp, err := m.get(ctx, "/metrics")
	if err != nil {
		return 0, fmt.Errorf("metrics of %s: %w", m.name, err)
	}
	defer resp.Body.Close()
	sum, found := 0.0, false
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		labels, ok := strings.CutPrefix(lines.Text(), "grpc_server_msg_received_total{")
		if !ok {
			continue
		}
		_, value, _ := strings.Cut(labels, "} ")
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return 0, fmt.Errorf("metrics of %s: %w", m.name, err)
		}
		sum, found = sum+n, true
	}
	if err := lines.Err(); err != nil {
		return 0, fmt.Errorf("metrics of %s: %w", m.name, err)
	}
	if !found {
		return 0, fmt.Errorf("the metrics of %s do not count messages", m.name)
	}
	return int64(sum), nil
}

func (m member) get(ctx context.Context, path string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, m.scheme()+m.addr+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	return m.web.Do(req)
}
