package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/clock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func someEvents(n int) []history.Event {
	events := make([]history.Event, n)
	for i := range events {
		events[i] = history.Event{
			Time: int64(1000 + i), Seq: uint32(i + 1), Op: uint32(i + 1), User: history.MakeUser(1, i%7), Kind: history.Acquire,
			Phase: history.Invoke, Lock: uint16(i % 2), Value: int64(i),
		}
	}
	return events
}

// receiveAll reads a stream to its end and joins events that came in pieces.
func receiveAll(d *Decoder) (frames []Frame, events []history.Event, err error) {
	for {
		item, err := d.Next()
		if errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return frames, events, nil
		}
		if err != nil {
			return frames, events, err
		}
		if item.Frame != nil {
			frames = append(frames, *item.Frame)
		}
		events = append(events, item.Events...)
	}
}

// trickle returns a stream in pieces of any size.
type trickle struct {
	rest  []byte
	sizes func() int
}

func (t *trickle) Read(p []byte) (int, error) {
	if len(t.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(p[:min(len(p), t.sizes())], t.rest)
	t.rest = t.rest[n:]
	return n, nil
}

func TestStreamRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var stream bytes.Buffer
		c := NewNodeConn(nil, &stream)
		var frames []Frame
		var events []history.Event
		for range rapid.IntRange(0, 8).Draw(t, "items") {
			if rapid.Bool().Draw(t, "batch") {
				batch := someEvents(rapid.IntRange(0, 40).Draw(t, "records"))
				events = append(events, batch...)
				if err := c.SendEvents(batch); err != nil {
					t.Fatal(err)
				}
				continue
			}
			f := Frame{Type: TypeResult, Result: &Result{
				ID: rapid.Int().Draw(t, "id"), Outcome: OutcomeOK, Error: rapid.String().Draw(t, "error"),
			}}
			f.Result.Error = strings.ToValidUTF8(f.Result.Error, "?")
			frames = append(frames, f)
			if err := c.Send(f); err != nil {
				t.Fatal(err)
			}
		}
		in := &trickle{rest: stream.Bytes(), sizes: func() int { return rapid.IntRange(1, 300).Draw(t, "piece") }}
		gotFrames, gotEvents, err := receiveAll(NewDecoder(in))
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(gotFrames, frames) || !reflect.DeepEqual(gotEvents, events) {
			t.Fatalf("got %d frames and %d events, sent %d and %d", len(gotFrames), len(gotEvents), len(frames), len(events))
		}
	})
}

// A node that is killed or stopped in the middle of a batch has sent some of its records: they must be returned.
func TestBrokenBatchYieldsWhatCame(t *testing.T) {
	var stream bytes.Buffer
	if err := NewNodeConn(nil, &stream).SendEvents(someEvents(10)); err != nil {
		t.Fatal(err)
	}
	cut := stream.Bytes()[:batchHeader+3*history.RecordSize+20]
	_, events, err := receiveAll(NewDecoder(bytes.NewReader(cut)))
	if len(events) != 3 || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("got %d events and %v, want 3 and an unexpected end", len(events), err)
	}

	r, w := io.Pipe()
	defer w.Close()
	go func() { _, _ = w.Write(cut) }() // and nothing more: the sender is stopped
	item, err := NewDecoder(r).Next()
	if err != nil || len(item.Events) == 0 {
		t.Errorf("a stopped sender hides its records: %v, %v", item, err)
	}
}

func TestDecoderRefuses(t *testing.T) {
	record := history.AppendRecord(nil, &someEvents(1)[0])
	record[5] ^= 1
	for name, c := range map[string]struct{ stream, want string }{
		"garbage":       {"hello\n", "at the start of a frame or batch"},
		"unknown type":  {`{"type":"bye"}` + "\n", `unknown type \"bye\"`},
		"missing part":  {`{"type":"result"}` + "\n", `no key "result"`},
		"other version": {`{"type":"hello","hello":{"version":2}}` + "\n", "version 2 of the protocol; this program speaks 1"},
		"no version":    {`{"type":"start","start":{"name":"x"}}` + "\n", "version 0 of the protocol"},
		"half a frame":  {`{"type":"stop"`, "unexpected EOF"},
		"huge batch":    {"\x01\xff\xff\xff\xff", "at most"},
		"bad record":    {"\x01\x01\x00\x00\x00" + string(record), "checksum"},
		"not JSON":      {"{]\n", "invalid character"},
		"unknown lock": {
			`{"type":"event","event":{"time":1,"seq":1,"op":1,"user":"client-1/0","kind":"acquire","phase":"ok","lock":"x"}}` + "\n", "unknown lock",
		},
	} {
		_, _, err := receiveAll(NewDecoder(strings.NewReader(c.stream)))
		if err == nil || !strings.Contains(err.Error(), strings.ReplaceAll(c.want, `\"`, `"`)) {
			t.Errorf("%s: got %v, want an error with %q", name, err, c.want)
		}
	}
}

func TestEventsAsJSON(t *testing.T) {
	toNode, fromHarness := io.Pipe()
	fromNode, toHarness := io.Pipe()
	supervisor, node := NewConn(fromNode, fromHarness), NewNodeConn(toNode, toHarness)
	defer supervisor.Close()

	locks := []string{"lock-0", "lock-1"}
	if err := supervisor.Send(Frame{Type: TypeStart, Start: &Start{Name: "client-2", Index: 1, Format: FormatJSONL, Locks: locks}}); err != nil {
		t.Fatal(err)
	}
	item, err := node.Receive()
	if err != nil {
		t.Fatal(err)
	}
	start := item.Frame.Start
	want := someEvents(20)
	sent := make(chan error, 1)
	go func() {
		rec := NewRecorder(node, start.Format, start.Locks)
		for i := range want {
			rec.Append(&want[i])
		}
		sent <- errors.Join(rec.Close(), toHarness.Close())
	}()
	var got []history.Event
	for {
		item, err := supervisor.Receive()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, item.Events...)
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) { // the recorder has stamped want
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}

// A stopped client reads nothing: sending to it must not block, and closing must not either.
func TestSendToStoppedNode(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	c := NewConn(strings.NewReader(""), w)
	big := Frame{Type: TypeLog, Log: &Log{Text: strings.Repeat("x", 10_000)}}
	began := time.Now()
	const inPipe = 100 // more frames than a pipe holds
	for range queued + inPipe {
		if err = c.Send(big); err != nil {
			break
		}
	}
	if !errors.Is(err, ErrBacklog) {
		t.Errorf("got %v, want %v", err, ErrBacklog)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if err := c.Send(big); err == nil {
		t.Error("a closed connection accepts frames")
	}
	const blocked = 5 * time.Second // a call that waits for the node never returns, and all of these take 50 ms
	if took := time.Since(began); took > blocked {
		t.Errorf("took %v", took)
	}
}

func FuzzDecoder(f *testing.F) {
	var stream bytes.Buffer
	c := NewNodeConn(nil, &stream)
	for _, fr := range []Frame{
		{Type: TypeHello, Hello: &Hello{Process: "x"}},
		{Type: TypeStart, Start: &Start{Locks: []string{"lock-0"}}},
		{Type: TypeCommand, Command: &Command{ID: 1, Do: DoAcquire}},
		{Type: TypeDone, Done: &Done{Errors: map[string]int64{"x": 1}}},
	} {
		if err := c.Send(fr); err != nil {
			f.Fatal(err)
		}
		f.Add(bytes.Clone(stream.Bytes()))
	}
	if err := c.SendEvents(someEvents(3)); err != nil {
		f.Fatal(err)
	}
	f.Add(bytes.Clone(stream.Bytes()))
	f.Add([]byte(`{"type":"event","event":{"time":1,"seq":1,"op":1,"user":"client-1/0","kind":"stall","phase":"info","valid":"endless"}}` + "\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		frames, events, err := receiveAll(NewDecoder(bytes.NewReader(data)))
		if err != nil {
			return
		}
		// A decoded frame must survive encoding and decoding.
		var again bytes.Buffer
		c := NewNodeConn(nil, &again)
		for _, fr := range frames {
			if err := c.Send(fr); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.SendEvents(events); err != nil {
			t.Fatal(err)
		}
		frames2, events2, err := receiveAll(NewDecoder(&again))
		if err != nil {
			t.Fatal(err)
		}
		a, _ := json.Marshal(frames)
		b, _ := json.Marshal(frames2)
		if !bytes.Equal(a, b) || len(events) != len(events2) {
			t.Fatalf("%s\nbecame\n%s", a, b)
		}
	})
}

func BenchmarkDecoder(b *testing.B) {
	var stream bytes.Buffer
	c := NewNodeConn(nil, &stream)
	const records, batches = 64, 1000
	for range batches {
		if err := c.SendEvents(someEvents(records)); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		d := NewDecoder(bytes.NewReader(stream.Bytes()))
		for {
			item, err := d.Next()
			if err != nil {
				break
			}
			n += len(item.Events)
		}
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "events/s")
}

// A stall by which a hold of any TTL can be late is recorded, under the name of its user; a late tick is not.
func TestStallsThatMatterToAGrantAreRecorded(t *testing.T) {
	for _, c := range []struct {
		stood    time.Duration
		recorded bool
	}{{stallFrom + time.Millisecond, true}, {60 * time.Millisecond, true}, {0, false}} {
		rec, r, end := piped(t)
		p := &Pulse{stop: make(chan struct{}), ended: make(chan struct{})}
		close(p.stop)
		p.run(clock.Mono()-int64(c.stood), func(gap int64) { rec.Stood(3, gap) }, nil) // as if it had not run for that long
		go end()
		_, events, err := receiveAll(NewDecoder(r))
		_ = r.Close()
		if err != nil {
			t.Fatal(err)
		}
		want := c.recorded || p.longest.Load() > int64(2*beat) // the machine stood still during the test
		if got := len(events) == 1 && events[0].Kind == history.Stall && events[0].User == 3 && events[0].Value > int64(c.stood); got != want {
			t.Errorf("a stall of %v is recorded: %t: %+v", c.stood, got, events)
		}
	}
}
