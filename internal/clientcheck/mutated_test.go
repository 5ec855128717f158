package clientcheck

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/lockquake/lockquake/internal/wire"
)

// said lists what a client may send in a check; numbers and words are drawn.
var said = []string{
	`{"type":"hello","hello":{"version":1,"process":"x","pid":%d,"formats":["jsonl"],"points":["a","b"]}}`,
	`{"type":"hello","hello":{"version":1,"pid":%d}}`,
	`{"type":"ready","ready":{}}`,
	`{"type":"pong","pong":{"id":%d,"now":5,"wall":1,"mono":1}}`,
	`{"type":"result","result":{"id":%d,"outcome":"ok"}}`,
	`{"type":"point","point":{"point":"acquired","user":%d}}`,
	`{"type":"event","event":{"seq":%d,"op":1,"user":"client-1/0","kind":"acquire","phase":"invoke","lock":"lock-0","t":1}}`,
	`{"type":"done","done":{"recorded":%d,"errors":{"x":1}}}`,
	`{"type":"failed","failed":{"error":"%d"}}`,
	`{"type":"log","log":{"text":"%d"}}`,
}

// TestMutatedClients: whatever a client sends, each check ends with a finding. LOCKQUAKE_MUTATED is how many thousand
// conversations are held, of up to thirty frames each; 70 is a million frames.
func TestMutatedClients(t *testing.T) {
	t.Parallel()
	rounds, _ := strconv.Atoi(os.Getenv("LOCKQUAKE_MUTATED"))
	random := rand.New(rand.NewPCG(1, 2))
	for range max(rounds, 1) * 1000 {
		var b bytes.Buffer
		fmt.Fprintf(&b, said[random.IntN(2)]+"\n", 1)
		for range random.IntN(30) {
			line := fmt.Appendf(nil, said[random.IntN(len(said))]+"\n", random.IntN(12))
			if random.IntN(8) == 0 {
				line[random.IntN(len(line))] ^= 1 << random.IntN(8)
			}
			b.Write(line)
		}
		ended := make(chan struct{})
		close(ended)
		o := Options{
			Start: func(context.Context, int) (Process, error) { return Process{In: nothing{}, Out: &b, Ended: ended}, nil },
			Frame: func(int) (*wire.Start, error) { return &wire.Start{Name: "client-1", Locks: locks}, nil },
			waits: time.Second,
		}
		text := b.String()
		k := checks[random.IntN(len(checks)-1)] // the last one runs users for two seconds
		if wrong, err := o.one(t.Context(), 0, k); err != nil || len(wrong) == 0 && k.name != "hello" && k.name != "version" && k.name != "input ends" {
			t.Fatalf("%s: %q, %v, of\n%s", k.name, wrong, err, text)
		}
	}
}

// nothing discards what is written.
type nothing struct{}

func (nothing) Write(p []byte) (int, error) { return len(p), nil }
func (nothing) Close() error                { return nil }

var _ io.WriteCloser = nothing{}
