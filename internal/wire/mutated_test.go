package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"github.com/lockquake/lockquake/history"
)

// conversation returns what a client may send, in both formats.
func conversation(t *testing.T) []byte {
	t.Helper()
	var out []byte
	events := []history.Event{
		{Time: 10, Seq: 1, Op: 1, Kind: history.Acquire, Phase: history.Invoke},
		{Time: 20, Seq: 2, Op: 1, Grant: 1, Kind: history.Acquire, Phase: history.Ok, Value: 15, Valid: 1000},
		{Time: 30, Seq: 3, Op: 3, Grant: 1, Kind: history.Release, Phase: history.Invoke},
	}
	for _, f := range []Frame{
		{Type: TypeHello, Hello: NewHello("a client", "1")},
		{Type: TypeReady, Ready: &Ready{}},
		{Type: TypePong, Pong: &Pong{ID: 1, Now: 5}},
		{Type: TypeResult, Result: &Result{ID: 1, Outcome: OutcomeOK, Grant: "x"}},
		{Type: TypePoint, Point: &Point{Point: "acquired", Time: 7}},
		{Type: TypeLog, Log: &Log{Level: "info", Text: "é\u2028"}},
		{Type: TypeDone, Done: &Done{Recorded: 3, Errors: map[string]int64{"x": 1}}},
	} {
		line, err := json.Marshal(f)
		if err != nil {
			t.Fatal(err)
		}
		out = append(append(out, line...), '\n')
		batch := beginBatch(nil)
		for i := range events {
			batch = history.AppendRecord(batch, &events[i])
			out = append(append(history.AppendJSON(append(out, `{"type":"event","event":`...), &events[i], "", []string{"lock-0"}), '}'), '\n')
		}
		endBatch(batch, len(events))
		out = append(out, batch...)
	}
	return out
}

// TestMutatedFrames: whatever a client sends, its stream is read to an end or to an error. The error wraps
// ErrProtocol or io.ErrUnexpectedEOF. The stream's events are accepted or rejected. LOCKQUAKE_MUTATED is the number
// of streams in thousands, of some forty frames each; 25 is a million frames.
func TestMutatedFrames(t *testing.T) {
	t.Parallel()
	right := conversation(t)
	rounds, _ := strconv.Atoi(os.Getenv("LOCKQUAKE_MUTATED"))
	random := rand.New(rand.NewPCG(1, 2))
	refused, whole := 0, 0
	for range max(rounds, 1) * 1000 {
		b := bytes.Clone(right)
		for range random.IntN(4) {
			switch i := random.IntN(len(b)); random.IntN(4) {
			case 0:
				b[i] = byte(random.Uint32())
			case 1:
				b[i] ^= 1 << random.IntN(8)
			case 2:
				b = append(b[:i], b[min(len(b), i+random.IntN(200)):]...)
			case 3:
				b = append(b[:i:i], append([]byte(strconv.FormatUint(random.Uint64(), 10)), b[i:]...)...)
			}
		}
		d := NewDecoder(bytes.NewReader(b))
		d.SetLocks([]string{"lock-0"})
		sense, sane := history.NewSense(history.Header{Process: "client-1", Locks: []string{"lock-0"}}), true
		for {
			item, err := d.Next()
			if errors.Is(err, io.EOF) {
				whole++
				break
			}
			if err != nil {
				if !errors.Is(err, ErrProtocol) && !errors.Is(err, io.ErrUnexpectedEOF) {
					t.Fatalf("%v", err)
				}
				refused++
				break
			}
			for i := 0; sane && i < len(item.Events); i++ {
				sane = sense.Observe(&item.Events[i]) == nil
			}
		}
	}
	if refused == 0 || whole == 0 {
		t.Errorf("%d streams were refused, %d read to their end", refused, whole)
	}
}
