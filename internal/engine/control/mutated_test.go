package control

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/internal/cluster"
	"github.com/lockquake/lockquake/internal/engine/live"
	"github.com/lockquake/lockquake/internal/wire"
)

// TestMutatedClients: whatever a client sends, a run reads it to its end, or says in one line what is wrong.
// LOCKQUAKE_MUTATED is the number of conversations in thousands, of a dozen frames each; 90 is a million frames.
func TestMutatedClients(t *testing.T) {
	t.Parallel()
	rounds, _ := strconv.Atoi(os.Getenv("LOCKQUAKE_MUTATED"))
	random, dir := rand.New(rand.NewPCG(1, 2)), t.TempDir()
	right, broken := conversation(t), 0
	for range max(rounds, 1) * 1000 {
		b := bytes.Clone(right)
		for range random.IntN(4) {
			switch i := random.IntN(len(b)); random.IntN(3) {
			case 0:
				b[i] ^= 1 << random.IntN(8)
			case 1:
				b = append(b[:i:i], b[min(len(b), i+random.IntN(200)):]...)
			case 2:
				b = append(b[:i:i], append([]byte(strconv.FormatUint(random.Uint64(), 10)), b[i:]...)...)
			}
		}
		conn := wire.NewConn(bytes.NewReader(b), io.Discard)
		s := newProcess(&cluster.Node{}, 0, live.New(), conn)
		s.log, s.directed = slog.New(slog.DiscardHandler), random.IntN(2) == 0
		_ = conn.Send(wire.Frame{Type: wire.TypeStart, Start: &wire.Start{Locks: []string{"lock-0"}}}) // which makes lock names known
		f, err := history.Create(dir+"/client-1.lqh", history.Header{Process: "client-1", Locks: []string{"lock-0"}})
		if err != nil {
			t.Fatal(err)
		}
		s.File, s.sense = f, history.NewSense(history.Header{Process: "client-1", Locks: []string{"lock-0"}})
		if random.IntN(2) == 0 {
			s.expect(&wire.Start{Workload: &wire.Workload{Users: 1}})
		}
		s.started.Store(0)
		if _, err := s.Order(wire.Command{Do: wire.DoAcquire}); err != nil {
			t.Fatal(err)
		}
		s.read()
		if err := s.failure(); err != nil {
			broken++
			if bytes.ContainsRune([]byte(err.Error()), '\n') {
				t.Fatalf("more than a line: %q", err)
			}
		}
		if err := s.close(); err != nil && !errors.Is(err, io.ErrClosedPipe) {
			t.Fatal(err)
		}
		_ = os.Remove(dir + "/client-1.lqh")
	}
	if all := max(rounds, 1) * 1000; broken == 0 || broken == all {
		t.Errorf("of %d conversations %d were refused", all, broken)
	}
}

// conversation returns what a client may send, in both formats.
func conversation(t *testing.T) []byte {
	t.Helper()
	now := clock.Now()
	var out []byte
	frames := func(list ...wire.Frame) {
		for _, f := range list {
			line, err := json.Marshal(f)
			if err != nil {
				t.Fatal(err)
			}
			out = append(append(out, line...), '\n')
		}
	}
	hello := wire.NewHello("a client", "1")
	hello.Version = wire.Version
	frames(wire.Frame{Type: wire.TypeHello, Hello: hello}, wire.Frame{Type: wire.TypeReady, Ready: &wire.Ready{}}, wire.Frame{Type: wire.TypePong, Pong: &wire.Pong{ID: 1, Now: now}})
	events := []history.Event{
		{Time: now - 30, Seq: 1, Op: 1, Kind: history.Acquire, Phase: history.Invoke},
		{Time: now - 20, Seq: 2, Op: 1, Grant: 1, Kind: history.Acquire, Phase: history.Ok, Value: now - 25, Valid: now + 1000},
		{Time: now - 10, Seq: 3, Op: 3, Grant: 1, Kind: history.Release, Phase: history.Invoke},
		{Time: now, Seq: 4, Op: 3, Grant: 1, Kind: history.Release, Phase: history.Ok},
	}
	for i := range events {
		out = append(history.AppendJSON(append(out, `{"type":"event","event":`...), &events[i], "", []string{"lock-0"}), "}\n"...)
	}
	frames(
		wire.Frame{Type: wire.TypeResult, Result: &wire.Result{ID: 1, Outcome: wire.OutcomeOK}}, wire.Frame{Type: wire.TypePoint, Point: &wire.Point{Point: "acquired"}},
		wire.Frame{Type: wire.TypeLog, Log: &wire.Log{Text: "é\u2028"}}, wire.Frame{Type: wire.TypeDone, Done: &wire.Done{Recorded: 4}},
	)
	return out
}
