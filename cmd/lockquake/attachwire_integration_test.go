//go:build integration

package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3lock/v3lockpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/lockquake/lockquake/backends"
)

// watchRedis reads commands of the Redis protocol.
func watchRedis(t *testing.T, r *recorder, _ backends.Access, _, address string) string {
	return tap(t, address, r.reads)
}

func (r *recorder) reads(in io.Reader) error {
	lines := bufio.NewReader(in)
	for {
		words, err := readCommand(lines)
		if err != nil {
			return err
		}
		r.redis(words)
	}
}

// readCommand reads an array of bulk strings.
func readCommand(in *bufio.Reader) ([]string, error) {
	n, err := readCount(in, '*')
	if err != nil {
		return nil, err
	}
	words := make([]string, n)
	for i := range words {
		size, err := readCount(in, '$')
		if err != nil {
			return nil, err
		}
		b := make([]byte, size+2)
		if _, err := io.ReadFull(in, b); err != nil {
			return nil, err
		}
		words[i] = string(b[:size])
	}
	return words, nil
}

func readCount(in *bufio.Reader, sign byte) (int, error) {
	line, err := in.ReadString('\n')
	if err != nil {
		return 0, err
	}
	if line[0] != sign {
		return 0, fmt.Errorf("%q is no count after %q", line, sign)
	}
	return strconv.Atoi(strings.TrimSpace(line[1:]))
}

// The commands allowed on Redis: those whose first argument is a key, those with keys only, scripts with keys, and
// those without keys. The last kind only reads, or concerns the client's own connection.
var (
	redisOneKey  = []string{"GET", "SET", "SETNX", "PEXPIRE", "PTTL"}
	redisKeys    = []string{"DEL", "MGET"}
	redisScripts = []string{"EVAL", "EVALSHA"}
	redisNoKey   = []string{
		"PING", "INFO", "ROLE", "TIME", "AUTH", "HELLO", "CLIENT SETNAME", "CLIENT SETINFO", "CLIENT TRACKING", "CLIENT ID", "SCRIPT LOAD", "SUBSCRIBE", "UNSUBSCRIBE",
		"SENTINEL GET-MASTER-ADDR-BY-NAME", "SENTINEL SENTINELS", "SENTINEL MASTER", "SENTINEL REPLICAS", "SENTINEL SLAVES", "SENTINEL CKQUORUM",
		"DBSIZE", "CLUSTER SLOTS", "CLUSTER SHARDS", "CLUSTER NODES", "CLUSTER INFO", "READONLY", "ASKING",
	}
)

// redis checks one command.
func (r *recorder) redis(words []string) {
	verb := strings.ToUpper(words[0])
	two := verb
	if len(words) > 1 {
		two += " " + strings.ToUpper(words[1])
	}
	switch {
	case slices.Contains(redisOneKey, verb):
		r.command(verb, words[1])
	case slices.Contains(redisKeys, verb):
		r.command(verb, words[1:]...)
	case slices.Contains(redisScripts, verb):
		n, err := strconv.Atoi(words[2])
		if err != nil || n == 0 {
			r.refuse("%s names no keys", words)
			return
		}
		r.command(verb, words[3:3+n]...)
	case two == "CLUSTER KEYSLOT":
		r.command(two, words[2])
	case verb == "SCAN" && len(words) > 3 && strings.EqualFold(words[2], "match"):
		r.command(verb, words[3])
	case slices.Contains(redisNoKey, verb), slices.Contains(redisNoKey, two):
		r.command(two)
	default:
		r.refuse("%s is asked", two)
	}
}

// watchSentinel puts a proxy in front of a Sentinel. Clients learn the servers' own addresses from it.
func watchSentinel(t *testing.T, r *recorder, a backends.Access, port, address string) string {
	if port == "sentinel" {
		return watchRedis(t, r, a, port, address)
	}
	return watchMonitored(t, r, a, port, address)
}

// watchMonitored reads a server's MONITOR output, because clients connect to the addresses that the servers give them.
// Clients that were connected before do not count.
func watchMonitored(t *testing.T, r *recorder, a backends.Access, _, address string) string {
	client := redis.NewClient(&redis.Options{Addr: address, Password: a.Password, Protocol: 2})
	before, err := client.ClientList(t.Context()).Result()
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(conn, "AUTH %s\r\nMONITOR\r\n", a.Password)
	lines := bufio.NewReader(conn)
	for range 2 { // both are answered with OK
		if ok, err := lines.ReadString('\n'); err != nil || !strings.HasPrefix(ok, "+OK") {
			t.Fatalf("%q, %v", ok, err)
		}
	}
	var done sync.WaitGroup
	done.Go(func() { r.monitored(lines, before) })
	t.Cleanup(func() { _ = conn.Close(); _ = client.Close(); done.Wait() })
	return address
}

var monitorLine = regexp.MustCompile(`^\+[0-9.]+ \[\d+ (\S+)\] (.*)`)

// monitored parses lines such as: +1700000000.5 [0 127.0.0.1:40000] "SET" "key" "value".
func (r *recorder) monitored(lines *bufio.Reader, before string) {
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return
		}
		m := monitorLine.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil || m[1] == "lua" || strings.Contains(before, "addr="+m[1]+" ") {
			continue
		}
		var words []string
		for _, w := range regexp.MustCompile(`"(?:[^"\\]|\\.)*"`).FindAllString(m[2], -1) {
			if plain, err := strconv.Unquote(w); err == nil {
				w = plain
			}
			words = append(words, w)
		}
		// A Sentinel or a replica identifies itself first when it reconnects.
		if len(words) > 0 && strings.EqualFold(words[0], "REPLCONF") || len(words) > 2 && strings.EqualFold(words[1], "SETNAME") && strings.HasPrefix(words[2], "sentinel-") {
			before += "addr=" + m[1] + " "
			continue
		}
		r.redis(words)
	}
}

// rawBytes is a codec that passes messages through unchanged.
type rawBytes struct{}

func (rawBytes) Marshal(v any) ([]byte, error)   { return *v.(*[]byte), nil }
func (rawBytes) Unmarshal(b []byte, v any) error { *v.(*[]byte) = slices.Clone(b); return nil }
func (rawBytes) Name() string                    { return "proto" }

// watchEtcd puts a gRPC proxy in front of one member. HTTP/1.1 to the same port is passed through.
func watchEtcd(t *testing.T, r *recorder, _ backends.Access, _, address string) string {
	to, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	e := &etcdRecorder{recorder: r}
	s := grpc.NewServer(grpc.ForceServerCodec(rawBytes{}), grpc.UnknownServiceHandler(func(_ any, in grpc.ServerStream) error { return e.pass(to, in) }))
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { s.Stop(); _ = to.Close() })
	return serveEach(t, "127.0.0.1", func(c net.Conn) {
		p := peeked{c, bufio.NewReader(c)}
		if first, _ := p.in.Peek(4); string(first) == "GET " {
			passOn(t, p, address, r.http)
		} else {
			passOn(t, p, l.Addr().String(), func(io.Reader) error { return nil })
		}
	})
}

// peeked is a connection whose first bytes were read ahead.
type peeked struct {
	net.Conn
	in *bufio.Reader
}

func (p peeked) Read(b []byte) (int, error) { return p.in.Read(b) }

func (r *recorder) http(in io.Reader) error {
	asked, err := http.ReadRequest(bufio.NewReader(in))
	if err != nil {
		return err
	}
	if asked.URL.Path != "/metrics" {
		r.refuse("GET %s is asked", asked.URL.Path)
	}
	r.command("GET " + asked.URL.Path)
	return nil
}

// etcdRecorder checks the requests of etcd's API.
type etcdRecorder struct {
	*recorder
}

// granted holds the leases that recorded clients were granted.
var granted sync.Map

// pass forwards one call.
func (e *etcdRecorder) pass(to *grpc.ClientConn, in grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(in)
	md, _ := metadata.FromIncomingContext(in.Context())
	ctx, cancel := context.WithCancel(metadata.NewOutgoingContext(in.Context(), md.Copy()))
	defer cancel()
	out, err := to.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method, grpc.ForceCodec(rawBytes{}))
	if err != nil {
		return err
	}
	go func() {
		for {
			var b []byte
			if err := in.RecvMsg(&b); err != nil {
				_ = out.CloseSend()
				return
			}
			if err := e.asked(method, b); err != nil {
				e.refuse("%s: %v", method, err)
			}
			if out.SendMsg(&b) != nil {
				return
			}
		}
	}()
	for {
		var b []byte
		if err := out.RecvMsg(&b); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		var lease pb.LeaseGrantResponse
		if method == "/etcdserverpb.Lease/LeaseGrant" && proto.Unmarshal(b, &lease) == nil {
			granted.Store(lease.ID, true)
		}
		if err := in.SendMsg(&b); err != nil {
			return err
		}
	}
}

// asked checks one request.
func (e *etcdRecorder) asked(method string, b []byte) error {
	decode := func(m proto.Message, keys func() []string) error {
		if err := proto.Unmarshal(b, m); err != nil {
			return err
		}
		e.command(method, keys()...)
		return nil
	}
	none := func() []string { return nil }
	switch method {
	case "/etcdserverpb.KV/Range":
		m := &pb.RangeRequest{}
		return decode(m, func() []string { return span(m.Key, m.RangeEnd) })
	case "/etcdserverpb.KV/Put":
		m := &pb.PutRequest{}
		return decode(m, func() []string { return []string{string(m.Key)} })
	case "/etcdserverpb.KV/DeleteRange":
		m := &pb.DeleteRangeRequest{}
		return decode(m, func() []string { return span(m.Key, m.RangeEnd) })
	case "/etcdserverpb.KV/Txn":
		m := &pb.TxnRequest{}
		return decode(m, func() []string { return txnKeys(m) })
	case "/etcdserverpb.Watch/Watch":
		m := &pb.WatchRequest{}
		return decode(m, func() []string {
			if c := m.GetCreateRequest(); c != nil {
				return span(c.Key, c.RangeEnd)
			}
			return nil
		})
	case "/v3lockpb.Lock/Lock":
		m := &v3lockpb.LockRequest{}
		return decode(m, func() []string { return []string{string(m.Name)} })
	case "/v3lockpb.Lock/Unlock":
		m := &v3lockpb.UnlockRequest{}
		return decode(m, func() []string { return []string{string(m.Key)} })
	case "/etcdserverpb.Lease/LeaseRevoke":
		m := &pb.LeaseRevokeRequest{}
		err := decode(m, none)
		if _, ours := granted.Load(m.ID); err == nil && !ours {
			return fmt.Errorf("lease %x is another's", m.ID)
		}
		return err
	case "/etcdserverpb.Lease/LeaseGrant", "/etcdserverpb.Lease/LeaseKeepAlive", "/etcdserverpb.Maintenance/Status", "/etcdserverpb.Cluster/MemberList":
		e.command(method)
		return nil
	}
	return errors.New("it is asked")
}

// span returns the first and the last key of a range. If the end is the prefix with its last byte incremented, the
// range is below the prefix.
func span(key, end []byte) []string {
	out := []string{string(key)}
	if n := len(end); n > 0 {
		last := slices.Clone(end)
		last[n-1]--
		out = append(out, string(last))
	}
	return out
}

func txnKeys(m *pb.TxnRequest) (out []string) {
	for _, c := range m.Compare {
		out = append(out, span(c.Key, c.RangeEnd)...)
	}
	for _, op := range slices.Concat(m.Success, m.Failure) {
		switch {
		case op.GetRequestPut() != nil:
			out = append(out, string(op.GetRequestPut().Key))
		case op.GetRequestRange() != nil:
			out = append(out, span(op.GetRequestRange().Key, op.GetRequestRange().RangeEnd)...)
		case op.GetRequestDeleteRange() != nil:
			out = append(out, span(op.GetRequestDeleteRange().Key, op.GetRequestDeleteRange().RangeEnd)...)
		case op.GetRequestTxn() != nil:
			out = append(out, txnKeys(op.GetRequestTxn())...)
		}
	}
	return out
}

// The requests allowed on ZooKeeper, by number: with a path, and without one.
var (
	zkWithPath = map[int32]string{1: "create", 2: "delete", 3: "exists", 4: "getData", 8: "getChildren", 9: "sync", 12: "getChildren2", 15: "create2"}
	zkNoPath   = map[int32]string{11: "ping", -11: "close", 100: "auth", 101: "setWatches"}
	zkWords    = []string{"srvr", "mntr", "envi", "cons", "ruok", "conf"}
)

// watchZooKeeper reads frames of the ZooKeeper protocol.
func watchZooKeeper(t *testing.T, r *recorder, _ backends.Access, _, address string) string {
	return tap(t, address, func(in io.Reader) error {
		for first := true; ; first = false {
			var head [4]byte
			if _, err := io.ReadFull(in, head[:]); err != nil {
				return err
			}
			if first && slices.Contains(zkWords, string(head[:])) {
				r.command(string(head[:]))
				return nil
			}
			n := binary.BigEndian.Uint32(head[:])
			if n > 1<<20 {
				return fmt.Errorf("a frame of %d bytes, or the word %q", n, head)
			}
			frame := make([]byte, n)
			if _, err := io.ReadFull(in, frame); err != nil {
				return err
			}
			if !first {
				r.zookeeper(frame)
			}
		}
	})
}

func (r *recorder) zookeeper(frame []byte) {
	op := int32(binary.BigEndian.Uint32(frame[4:]))
	if name, ok := zkNoPath[op]; ok {
		r.command(name)
		return
	}
	name, ok := zkWithPath[op]
	if !ok {
		r.refuse("request %d is sent", op)
		return
	}
	size := binary.BigEndian.Uint32(frame[8:])
	r.command(name, string(frame[12:12+size])+"/") // the node of the prefix itself may be created and removed
}

// Statements that Postgres must never receive.
var sqlForbidden = regexp.MustCompile(`(?i)\b(pg_terminate_backend|pg_cancel_backend|pg_reload_conf|alter|truncate|role|grant|vacuum|checkpoint|hashtextextended|set_config)\b`)

// sqlNames matches the schemas that are created and dropped. Tables without a schema are in search_path.
var sqlNames = regexp.MustCompile(`(?i)\b(?:create|drop)\s+(?:schema)\s+(?:if\s+(?:not\s+)?exists\s+)?"?([^"\s;]+)`)

// watchPostgres reads messages of the Postgres protocol.
func watchPostgres(t *testing.T, r *recorder, _ backends.Access, _, address string) string {
	return tap(t, address, func(in io.Reader) error {
		if err := r.startup(in); err != nil {
			return err
		}
		for {
			var head [5]byte
			if _, err := io.ReadFull(in, head[:]); err != nil {
				return err
			}
			body := make([]byte, binary.BigEndian.Uint32(head[1:])-4)
			if _, err := io.ReadFull(in, body); err != nil {
				return err
			}
			switch head[0] {
			case 'Q':
				r.sql(strings.TrimRight(string(body), "\x00"))
			case 'P':
				parts := strings.Split(string(body), "\x00")
				r.sql(parts[1])
			}
		}
	})
}

// startup reads the first message. A session must search for tables in the run's schema only.
func (r *recorder) startup(in io.Reader) error {
	var size [4]byte
	if _, err := io.ReadFull(in, size[:]); err != nil {
		return err
	}
	body := make([]byte, binary.BigEndian.Uint32(size[:])-4)
	if _, err := io.ReadFull(in, body); err != nil {
		return err
	}
	const cancel = 80877102
	if binary.BigEndian.Uint32(body) == cancel {
		return nil
	}
	words := strings.Split(string(body[4:]), "\x00")
	i := slices.Index(words, "search_path")
	if i < 0 {
		r.refuse("a session has no search_path: %q", words)
		return nil
	}
	r.command("search_path", strings.Trim(words[i+1], `"`))
	return nil
}

func (r *recorder) sql(text string) {
	if found := sqlForbidden.FindString(text); found != "" {
		r.refuse("%s is in %q", found, text)
	}
	var names []string
	for _, m := range sqlNames.FindAllStringSubmatch(text, -1) {
		names = append(names, m[1])
	}
	r.command(text, names...)
}
