package etcd

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc"

	"github.com/lockquake/lockquake/backends"
	etcdnode "github.com/lockquake/lockquake/backends/etcd/node"
	"github.com/lockquake/lockquake/backends/listed"
	"github.com/lockquake/lockquake/backends/topology"
	"github.com/lockquake/lockquake/internal/node"
	"github.com/lockquake/lockquake/lock"
)

// TestLeasesOfOldServersEndByTheWallClock distinguishes etcd 3.4, whose leases stay alive if a wall clock is set
// back, from later versions.
func TestLeasesOfOldServersEndByTheWallClock(t *testing.T) {
	for version, want := range map[Version]bool{builtIn: false, version3_4: true} {
		top, err := newTopology(topology.Common{TTL: 2 * time.Second}, func(into any) error { into.(*Params).Version = version; return nil })
		if err != nil {
			t.Fatal(err)
		}
		if got := listed.WallClock(mutex(), top); got != want {
			t.Errorf("%s: leases end by the wall clock: %t", version, got)
		}
		if listed.WallClock(backends.Lock{}, top) {
			t.Errorf("%s: a lock whose grants never end does so by the wall clock", version)
		}
	}
}

// TestParams: settings that the server does not support are rejected, and the error names the key.
func TestParams(t *testing.T) {
	for _, c := range []struct {
		common topology.Common
		set    func(*Params)
		want   string
	}{
		{topology.Common{TTL: 2 * time.Second}, func(*Params) {}, ""},
		{topology.Common{TTL: 2 * time.Second, Nodes: 5}, func(*Params) {}, ""},
		{topology.Common{TTL: 2 * time.Second, Nodes: 4}, func(*Params) {}, "odd"},
		{topology.Common{TTL: time.Second}, func(*Params) {}, "no lease shorter than 2s"},
		{topology.Common{TTL: time.Second}, func(p *Params) { p.Election = 500 * time.Millisecond }, ""},
		{topology.Common{TTL: 2 * time.Second}, func(p *Params) { p.Election = 2 * time.Second }, "no lease shorter than 3s"},
		{topology.Common{TTL: 2500 * time.Millisecond}, func(*Params) {}, "whole seconds, such as 3s"},
		{topology.Common{TTL: 2 * time.Second}, func(p *Params) { p.Election = 300 * time.Millisecond }, "five heartbeats"},
		{topology.Common{TTL: 2 * time.Second}, func(p *Params) { p.Heartbeat = 100 }, "heartbeat"},
		{topology.Common{TTL: 2 * time.Second}, func(p *Params) { p.Version = "3.4" }, ""},
		{topology.Common{TTL: 2 * time.Second}, func(p *Params) { p.Version = "2" }, "must be built-in"},
		{topology.Common{TTL: 2 * time.Second}, func(p *Params) { p.Version, p.NoFsync = "3.4", true }, "unsafe_no_fsync"},
		{topology.Common{TTL: 2 * time.Second}, func(p *Params) { p.Version, p.Bump = "3.4", 1 }, "bump_revision"},
		{topology.Common{TTL: 2 * time.Second}, func(p *Params) { p.Bump = -1 }, "bump_revision"},
		{topology.Common{TTL: 2 * time.Second}, func(p *Params) { p.LockDelay = time.Second }, ""}, // mutex has none
		{topology.Common{TTL: 2 * time.Second, Lock: "chubby"}, func(p *Params) { p.LockDelay = 0 }, ""},
		{topology.Common{TTL: 2 * time.Second, Lock: "chubby"}, func(p *Params) { p.LockDelay = time.Second }, "none shorter than 2s"},
		{topology.Common{TTL: 2 * time.Second, Lock: "chubby"}, func(p *Params) { p.LockDelay = 2500 * time.Millisecond }, "such as 3s"},
	} {
		_, err := newTopology(c.common, func(into any) error { c.set(into.(*Params)); return nil })
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%+v: error is %v; it should say %q", c.common, err, c.want)
		}
	}
}

// TestGrantKey takes apart what names a grant.
func TestGrantKey(t *testing.T) {
	key, revision, err := GrantKey(grantID("lockquake/lock-0/7@f", 42))
	if err != nil || key != "lockquake/lock-0/7@f" || revision != 42 {
		t.Errorf("%q at %d, %v", key, revision, err)
	}
	for _, wrong := range []string{"", "lockquake/lock-0", "lockquake/lock-0@", "a@b"} {
		if _, _, err := GrantKey(wrong); err == nil {
			t.Errorf("%q is taken for a grant", wrong)
		}
	}
}

// TestPinned: each client knows one member; the first one follows the last.
func TestPinned(t *testing.T) {
	for i, want := range []string{"a:1", "b:1", "c:1", "a:1"} {
		a := backends.Access{TTL: 2 * time.Second, Client: i, Params: json.RawMessage(`{"timeout_ns":1000000000,"lock_delay_ns":0,"pinned":true}`)}
		for _, n := range []string{"a", "b", "c"} {
			a.Nodes = append(a.Nodes, backends.Endpoint{Name: n, Addresses: map[string]string{Port: n + ":1"}})
		}
		c, err := dial(t.Context(), a)
		if err != nil {
			t.Fatal(err)
		}
		if got := c.client.Endpoints(); !slices.Equal(got, []string{want}) {
			t.Errorf("client %d knows %v, want %s", i, got, want)
		}
		_ = c.Close()
	}
}

// TestCommand looks at the argv of one of three members.
func TestCommand(t *testing.T) {
	p := defaults()
	at := func(node, port string) string {
		return node + ":" + map[string]string{Port: "2379", peerPort: "2380"}[port]
	}
	argv := p.command(seat{name: "etcd-2", dir: "/d", members: 3, address: at})
	text := strings.Join(argv, " ")
	for _, want := range []string{
		"lockquake node etcd --name etcd-2 --data-dir /d/data",
		"--initial-cluster etcd-1=http://etcd-1:2380,etcd-2=http://etcd-2:2380,etcd-3=http://etcd-3:2380",
		"--listen-client-urls http://0.0.0.0:2379 --advertise-client-urls http://etcd-2:2379",
		"--heartbeat-interval 100 --election-timeout 1000",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%s\nlacks %s", text, want)
		}
	}
	if slices.Contains(argv, "--unsafe-no-fsync") {
		t.Error("fsync is off by default")
	}
	p.NoFsync, p.Bump = true, 7
	text = strings.Join(p.command(seat{name: "etcd-1", dir: "/d", members: 1, address: at}), " ")
	if !strings.HasSuffix(text, "--bump-revision 7 --unsafe-no-fsync") {
		t.Errorf("%s: bump_revision or unsafe_no_fsync does nothing", text)
	}
}

// TestCommandOf34: etcd 3.4 is another program in another image, and needs a flag for its logger.
func TestCommandOf34(t *testing.T) {
	p := defaults()
	p.Version = version3_4
	argv := p.command(seat{name: "etcd-1", dir: "/d", members: 1, address: func(string, string) string { return "h:1" }})
	if text := strings.Join(argv, " "); !strings.HasPrefix(text, "etcd --name etcd-1") || !strings.Contains(text, "--logger zap") {
		t.Error(text)
	}
	if p.image() != "etcd34" || defaults().image() != node.SelfProgram {
		t.Errorf("images %s and %s", p.image(), defaults().image())
	}
}

// TestRecoveryIncludesElectionsAndTheLockDelay checks the bound with a run's parameters.
func TestRecoveryIncludesElectionsAndTheLockDelay(t *testing.T) {
	params := func(election, delay time.Duration) json.RawMessage {
		params, err := json.Marshal(LockParams{Timeout: time.Second, Election: election, LockDelay: delay})
		if err != nil {
			t.Fatal(err)
		}
		return params
	}
	if usual, slow := mutex().Bound(3*time.Second, nil), mutex().Bound(3*time.Second, params(2*time.Second, 0)); usual != 9*time.Second || slow != 11*time.Second {
		t.Errorf("%s with an election timeout of 1s, %s with one of 2s", usual, slow)
	}
	bound := func(delay time.Duration) time.Duration {
		return chubby().Bound(2*time.Second, params(time.Second, delay))
	}
	if none, some := bound(0), bound(10*time.Second); none != mutex().Bound(2*time.Second, nil) || some < none+10*time.Second {
		t.Errorf("%s without, %s with a lock-delay of 10s", none, some)
	}
}

// TestCell: one session shares the lock, one has died and left a mark, and one is in its lock-delay.
func TestCell(t *testing.T) {
	kv := func(key string, create, mod, lease int64) *mvccpb.KeyValue {
		return &mvccpb.KeyValue{Key: []byte("lockquake/a/" + key), CreateRevision: create, ModRevision: mod, Lease: lease}
	}
	c := cellOf("lockquake/a", []*mvccpb.KeyValue{
		kv("generation", 3, 7, 0), kv("held/b1", 9, 9, 0xb1), kv("held/b0", 8, 8, 0xb0),
		kv("mark/s/b0", 8, 8, 0), kv("mark/s/b1", 9, 9, 0), kv("mark/s/dead", 7, 7, 0), kv("mark/x/late", 4, 6, 0xd),
	})
	if c.generation != 7 {
		t.Errorf("generation %d", c.generation)
	}
	if h := c.holders(); len(h) != 2 || h[0].CreateRevision != 8 {
		t.Errorf("holders %v", h)
	}
	if d := c.dead(); len(d) != 1 || string(d[0].Key) != "lockquake/a/mark/s/dead" {
		t.Errorf("dead %v", d)
	}
	if mode, lease := c.split(c.marks[3]); mode != lock.Exclusive || lease != "late" {
		t.Errorf("%s %s", mode, lease)
	}
}

// TestNodeNeedsDataDir: the server must not write to the working directory.
func TestNodeNeedsDataDir(t *testing.T) {
	if err := etcdnode.RunNode([]string{"--name", "data-dir"}); !errors.Is(err, etcdnode.ErrNoDataDir) {
		t.Errorf("without --data-dir: %v", err)
	}
}

// scripted is a stream with prepared answers.
type scripted struct {
	grpc.ClientStream
	answers []*pb.LeaseKeepAliveResponse
}

func (*scripted) SendMsg(any) error { return nil }

func (s *scripted) RecvMsg(m any) error {
	a := s.answers[0]
	s.answers = s.answers[1:]
	r := m.(*pb.LeaseKeepAliveResponse)
	r.ID, r.TTL = a.ID, a.TTL
	return nil
}

// TestValidityCountsFromTheAnsweredRequest sends three keep-alives and delays the answers to the first two.
func TestValidityCountsFromTheAnsweredRequest(t *testing.T) {
	const id, ttl = 7, 10
	answer := func(ttl int64) *pb.LeaseKeepAliveResponse { return &pb.LeaseKeepAliveResponse{ID: id, TTL: ttl} }
	ls := newLeases()
	granted := time.Now().Add(-time.Second)
	ls.promise(id, granted, ttl)
	k := &keepAlives{
		ClientStream: &scripted{answers: []*pb.LeaseKeepAliveResponse{answer(ttl), answer(ttl), answer(0), answer(ttl)}},
		leases:       ls, sent: map[int64][]time.Time{},
	}
	var sent [4]time.Time // sent[i] is taken just after request i
	for i := range 3 {
		if err := k.SendMsg(&pb.LeaseKeepAliveRequest{ID: id}); err != nil {
			t.Fatal(err)
		}
		sent[i] = time.Now()
		time.Sleep(20 * time.Millisecond)
	}
	full := ttl*time.Second - backends.Drift(ttl*time.Second)
	last := granted
	for i := range 2 {
		if err := k.RecvMsg(&pb.LeaseKeepAliveResponse{}); err != nil {
			t.Fatal(err)
		}
		v, _ := ls.validity(id)
		end, _ := v.Time()
		if from := end.Add(-full); from.After(sent[i]) || !from.After(last) {
			t.Errorf("answer %d: validity counts from %s after its request", i, from.Sub(sent[i]))
		}
		last = sent[i]
	}
	before, _ := ls.validity(id)
	for range 2 { // an expired lease, and an answer to nothing
		if err := k.RecvMsg(&pb.LeaseKeepAliveResponse{}); err != nil {
			t.Fatal(err)
		}
	}
	if after, _ := ls.validity(id); after != before {
		t.Error("an answer that promises nothing moved the validity")
	}
	ls.promise(id, granted, ttl)
	if after, _ := ls.validity(id); after != before {
		t.Error("an older promise replaced a later one")
	}
	ls.forget(id)
	if v, _ := ls.validity(id); v != lock.Unknown() {
		t.Error("a forgotten lease is believed in")
	}
}
