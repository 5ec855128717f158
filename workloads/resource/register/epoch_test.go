package register

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/wait"
	"github.com/lockquake/lockquake/internal/wire"
	"github.com/lockquake/lockquake/lock"
	"github.com/lockquake/lockquake/workloads/resource"
	"github.com/lockquake/lockquake/workloads/resource/resourcetest"
)

// trio is three running replicas.
type trio struct {
	t     *testing.T
	guard string
	nodes []*running
}

func replicas(t *testing.T, guard string) *trio {
	t.Helper()
	x := &trio{t: t, guard: guard}
	for range epochReplicas {
		p := resourcetest.Start(t, func(in io.Reader, out io.Writer) error {
			return Replica(context.Background(), resource.Options{Listen: "127.0.0.1:0", In: in, Out: out, Version: "test"})
		})
		r := &running{Process: p, t: t, guard: guard}
		r.Frame(wire.TypeHello)
		r.Send(wire.Frame{Type: wire.TypeStart, Start: &wire.Start{
			Name: "epoch", Index: -1, Format: wire.FormatRecords, Locks: []string{"lock-0", "lock-1"}, Guard: guard, Record: true,
		}})
		r.address = r.Frame(wire.TypeReady).Ready.Address
		x.nodes = append(x.nodes, r)
	}
	return x
}

// nowhere is an address that refuses connections.
func nowhere(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// dial connects a user to the replicas, except those in beyond.
func (x *trio) dial(beyond ...int) resource.Connection {
	x.t.Helper()
	var addresses []string
	for i, r := range x.nodes {
		if slices.Contains(beyond, i) {
			addresses = append(addresses, nowhere(x.t))
		} else {
			addresses = append(addresses, r.address)
		}
	}
	c, err := epoch.Dial(x.t.Context(), resource.Target{Address: strings.Join(addresses, ","), Guard: x.guard})
	if err != nil {
		x.t.Fatal(err)
	}
	x.t.Cleanup(func() { _ = c.Close() })
	return c
}

// settled returns when every replica has answered all requests of a user: an access returns after a majority.
func settled(t *testing.T, c resource.Connection) {
	t.Helper()
	l := c.(*epochLink)
	r := l.request(by(0, 5), opWrite) // a read-only request that is not recorded
	r.Op = opGet
	if v := l.all(t.Context(), r, func(*votes) bool { return false }); v.open > 0 {
		t.Fatal(v.errs)
	}
}

// stop ends the replicas and returns the log of each for lock-0, as "read ok 5", by the token.
func (x *trio) stop() (logs [][]string) {
	x.t.Helper()
	for _, r := range x.nodes {
		r.Stop()
		var log []string
		for _, e := range r.Events {
			if e.Kind == history.Final {
				continue
			}
			kind, _ := strings.CutPrefix(e.Kind.String(), "effect-")
			log = append(log, kind+" "+e.Phase.String()+" "+string(rune('0'+e.Token)))
		}
		logs = append(logs, log)
	}
	return logs
}

// count returns the number of replicas that recorded what.
func count(logs [][]string, what string) (n int) {
	for _, log := range logs {
		if slices.Contains(log, what) {
			n++
		}
	}
	return n
}

// quickly ends an access that waits for a silent replica. Its result is the same however little was done by then.
func quickly(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}

// An old holder writes, with one replica gone from the start. If epochs are marked on a majority, both remaining
// replicas refuse the write; otherwise both apply it.
func TestMarkedMajorityRefusesTheOldHolder(t *testing.T) {
	for _, c := range []struct {
		guard string
		want  error
		stale int // replicas that applied the late write
		final int64
	}{
		{GuardMajority, resource.ErrFenced, 0, 2},
		{resource.GuardNone, nil, 2, 1},
	} {
		x := replicas(t, c.guard)
		older, newer := x.dial(0), x.dial(0)
		read(t, older, by(0, 5), 0)
		read(t, newer, by(1, 6), 0)
		write(t, newer, by(1, 6), 2, nil)
		write(t, older, by(0, 5), 1, c.want)
		read(t, newer, by(1, 6), c.final)
		if n := count(x.stop(), "write ok 5"); n != c.stale {
			t.Errorf("%s: %d replicas applied the late write, want %d", c.guard, n, c.stale)
		}
	}
}

// If epochs are marked on all replicas, none applies an old holder's write, and no user gets on without one of them.
func TestMarksOnAllNeedThemAll(t *testing.T) {
	t.Parallel()
	x := replicas(t, GuardAll)
	older, newer, lonely := x.dial(), x.dial(), x.dial(0)
	read(t, older, by(0, 5), 0)
	read(t, newer, by(1, 6), 0)
	write(t, newer, by(1, 6), 2, nil)
	write(t, older, by(0, 5), 1, resource.ErrFenced)
	if _, err := lonely.Read(quickly(t), by(2, 7)); err == nil || errors.Is(err, resource.ErrFenced) {
		t.Errorf("a read with one replica gone ended with %v", err)
	}
	if err := lonely.Write(quickly(t), by(2, 7), 3); err == nil || errors.Is(err, resource.ErrFenced) {
		t.Errorf("a write with one replica gone ended with %v", err)
	}
	if logs := x.stop(); count(logs, "write ok 6") != 3 || count(logs, "write ok 5") != 0 || count(logs, "write ok 7") != 0 {
		t.Errorf("logs %v", logs)
	}
}

// A mark on one replica is lost with it.
func TestOneMarkIsLostWithItsReplica(t *testing.T) {
	x := replicas(t, GuardOne)
	older, newer, late := x.dial(), x.dial(), x.dial(0)
	read(t, older, by(0, 5), 0)
	read(t, newer, by(1, 6), 0)
	write(t, newer, by(1, 6), 2, nil)
	write(t, older, by(0, 5), 1, nil) // refused by the first, applied by the other two
	settled(t, older)
	write(t, late, by(2, 4), 3, nil) // cannot reach the first, marks the second
	logs := x.stop()
	if !slices.Contains(logs[0], "write fail 5") || count(logs, "write ok 5") != 2 || count(logs, "write ok 4") != 2 {
		t.Errorf("logs %v", logs)
	}
}

// A late write to the one replica without a later mark is applied there. It certainly does not count: the next holder
// finds a later value on a majority.
func TestMinorityWriteIsOverruled(t *testing.T) {
	x := replicas(t, GuardMajority)
	older, newer := x.dial(), x.dial(2)
	read(t, older, by(0, 5), 0)
	read(t, newer, by(1, 6), 0)
	write(t, older, by(0, 5), 1, resource.ErrFenced)
	settled(t, older)
	for _, beyond := range []int{0, 1, 2} { // whichever majority is asked
		read(t, x.dial(beyond), by(2, lock.Token(7+beyond)), 0)
	}
	logs := x.stop()
	if n := count(logs, "write ok 5"); n != 1 || !slices.Contains(logs[2], "write ok 5") {
		t.Errorf("%d replicas applied the late write: %v", n, logs)
	}
}

// A dead holder's write on one replica counts once the next holder finds it there and stores it on another, under its
// own name. A later holder that does not ask that replica finds it too.
func TestFoundWriteIsPutDownAgain(t *testing.T) {
	x := replicas(t, GuardMajority)
	dying := x.dial()
	read(t, dying, by(0, 5), 0)
	x.nodes[0].direct(t, replicaRequest{
		Op: opPut, For: opWrite, Lock: "lock-0", who: who{User: by(0, 5).User.String(), Grant: 5, Token: 5, Access: 2}, Number: 2, Value: 9,
	})
	read(t, x.dial(2), by(1, 6), 9)
	read(t, x.dial(0), by(2, 7), 9)
	read(t, x.dial(0), by(2, 7), 9) // another connection of the same holder
	logs := x.stop()
	if n := count(logs, "write ok 5"); n != 3 { // found by the first, and copied to the third by the second
		t.Errorf("%d replicas have the write on record: %v", n, logs)
	}
	if slices.Index(logs[2], "write ok 5") > slices.Index(logs[2], "read ok 7") {
		t.Errorf("the write is on record behind the read that found it: %v", logs[2])
	}
}

// direct sends one request to one replica.
func (r *running) direct(t *testing.T, q replicaRequest) {
	t.Helper()
	l := &line{who: "test", address: r.address}
	defer l.Close()
	var a replicaReply
	if err := l.ask(t.Context(), q, &a); err != nil || a.err() != nil {
		t.Fatal(err, a.err())
	}
}

// If a write may count or not, its outcome is unknown; if nothing was written, that is certain.
func TestCertainOutcomesOfReplicas(t *testing.T) {
	x := replicas(t, GuardMajority)
	deaf := silent(t)
	mute, err := epoch.Dial(t.Context(), resource.Target{Address: strings.Join([]string{x.nodes[0].address, deaf, deaf}, ","), Guard: GuardMajority})
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	if err := mute.Write(quickly(t), by(0, 5), 1); !errors.Is(err, resource.ErrRefused) {
		t.Errorf("a write that could not mark a majority ended with %v", err)
	}
	if _, err := mute.Read(quickly(t), by(0, 5)); err == nil || errors.Is(err, resource.ErrFenced) {
		t.Errorf("a read of a minority ended with %v", err)
	}
	half := x.dial()
	read(t, half, by(1, 6), 0)
	for _, i := range []int{1, 2} {
		x.nodes[i].Stop()
	}
	err = half.Write(t.Context(), by(1, 6), 2)
	if err == nil || errors.Is(err, resource.ErrFenced) || errors.Is(err, resource.ErrRefused) || lock.Certain(err) {
		t.Errorf("a write that one replica applied ended with %v, and nobody knows", err)
	}
	x.nodes = x.nodes[:1]
	if logs := x.stop(); count(logs, "write ok 5") != 0 || count(logs, "write ok 6") != 1 {
		t.Errorf("log %v", logs)
	}
	if _, err := epoch.Dial(t.Context(), resource.Target{Address: nowhere(t) + "," + nowhere(t) + "," + deaf}); err == nil {
		t.Error("connected to a minority")
	}
}

// A silent replica delays no user, and gets every request, in order, when it answers again.
func TestSlowReplicaDelaysNoUser(t *testing.T) {
	x := replicas(t, GuardMajority)
	slow, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Close()
	held := make(chan net.Conn, 10)
	go func() {
		for c, err := slow.Accept(); err == nil; c, err = slow.Accept() {
			held <- c
		}
	}()
	c, err := epoch.Dial(t.Context(), resource.Target{
		Address: strings.Join([]string{x.nodes[0].address, x.nodes[1].address, slow.Addr().String()}, ","), Guard: GuardMajority,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for i := range int64(20) {
		write(t, c, by(0, 5), i+1, nil)
	}
	far, err := net.Dial("tcp", x.nodes[2].address)
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	near := <-held
	defer near.Close()
	go func() { _, _ = io.Copy(far, near) }()
	go func() { _, _ = io.Copy(near, far) }()
	wait.Until(t, time.Minute, "the slow replica hears of the last write", func() bool { return x.nodes[2].stands(t) == 20 })
	x.stop()
	var values []int64
	for _, e := range x.nodes[2].Events {
		if e.Kind == history.EffectWrite {
			values = append(values, e.Value)
		}
	}
	if len(values) != 20 || !slices.IsSorted(values) {
		t.Errorf("it applied %v", values)
	}
}

// stands returns a replica's final value.
func (r *running) stands(t *testing.T) int64 {
	t.Helper()
	r.Send(wire.Frame{Type: wire.TypeCommand, Command: &wire.Command{ID: 1, Do: wire.DoFinal}})
	return r.Frame(wire.TypeResult).Result.Value
}

// Two holders of ever higher epochs run beside late users: every acknowledged increment is in the final value.
func TestMajorityLosesNothing(t *testing.T) {
	x := replicas(t, GuardMajority)
	var turn sync.Mutex // replaces the lock: it orders the tokens
	var wg sync.WaitGroup
	var token lock.Token
	var acknowledged int64
	for u := range 6 {
		c := x.dial(u % 4) // one in four reaches all three
		wg.Go(func() {
			for range 50 {
				turn.Lock()
				token++
				a := by(u, token)
				v, err := c.Read(t.Context(), a)
				if err == nil {
					err = c.Write(t.Context(), a, v+1)
				}
				if err != nil {
					t.Error(err)
				} else {
					acknowledged++
				}
				turn.Unlock()
			}
		})
	}
	wg.Wait()
	read(t, x.dial(), by(9, token+1), acknowledged)
	if acknowledged != 300 {
		t.Errorf("%d of 300 were acknowledged", acknowledged)
	}
	for _, r := range x.nodes {
		r.Stop()
	}
}

func TestReplicaRefuses(t *testing.T) {
	r, err := newReplica(GuardMajority, []string{"lock-0"}, func(*history.Event) {})
	if err != nil {
		t.Fatal(err)
	}
	own := who{User: "client-1/0", Grant: 1, Token: 5, Access: 1}
	for _, c := range []struct {
		name string
		q    replicaRequest
		want error
	}{
		{"no lock", replicaRequest{Op: opMark, For: opRead, Lock: "lock-9", who: own}, resource.ErrRefused},
		{"nobody", replicaRequest{Op: opMark, For: opRead, Lock: "lock-0"}, resource.ErrRefused},
		{"no operation", replicaRequest{For: opRead, Lock: "lock-0", who: own}, resource.ErrRefused},
		{"no access", replicaRequest{Op: opMark, Lock: "lock-0", who: own}, resource.ErrRefused},
		{"no token", replicaRequest{Op: opMark, For: opRead, Lock: "lock-0", who: who{User: "client-1/0", Grant: 1}}, resource.ErrFenced},
		{"the first", replicaRequest{Op: opPut, For: opWrite, Lock: "lock-0", who: own, Number: 2, Value: 2}, nil},
		{"the same again", replicaRequest{Op: opPut, For: opWrite, Lock: "lock-0", who: own, Number: 2, Value: 3}, resource.ErrRefused},
		{"one before it", replicaRequest{Op: opPut, For: opWrite, Lock: "lock-0", who: own, Number: 1, Value: 1}, resource.ErrRefused},
		{"a mark", replicaRequest{Op: opMark, For: opRead, Lock: "lock-0", who: who{User: "client-2/0", Grant: 1, Token: 6, Access: 1}}, nil},
		{"below it", replicaRequest{Op: opPut, For: opWrite, Lock: "lock-0", who: own, Number: 3, Value: 3}, resource.ErrFenced},
		{"another mark below it", replicaRequest{Op: opMark, For: opWrite, Lock: "lock-0", who: own}, resource.ErrFenced},
	} {
		if _, err := r.apply(c.q); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
	if got := r.cells[0]; got.Value != 2 || got.applied != 1 {
		t.Errorf("there stands %+v", got)
	}
	if _, err := newReplica(resource.GuardFence, nil, nil); err == nil {
		t.Error("a replica took another resource's guard")
	}
}
