package wire

import (
	"bytes"
	"errors"
	"io"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/clock"
)

// piped returns a recorder that writes to a real pipe, and the pipe's other end.
func piped(t testing.TB) (*Recorder, *os.File, func()) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	rec := NewRecorder(NewNodeConn(nil, w), FormatRecords, nil)
	return rec, r, func() {
		if err := rec.Close(); err != nil {
			t.Error(err)
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestRecorderOrder(t *testing.T) {
	rec, r, end := piped(t)
	defer r.Close()
	const users, each = 20, 500
	var wg sync.WaitGroup
	for u := range users {
		wg.Go(func() {
			for i := range each {
				e := history.Event{Kind: history.Acquire, Phase: history.Invoke, User: history.MakeUser(0, u), Value: int64(i)}
				if i%2 == 0 {
					rec.Append(&e)
				} else {
					rec.AppendFlushed(&e)
				}
			}
		})
	}
	go func() { wg.Wait(); end() }()
	_, events, err := receiveAll(NewDecoder(r))
	if err != nil {
		t.Fatal(err)
	}
	stalls := 0
	next := map[history.User]int64{}
	for i, e := range events {
		if e.Seq != uint32(i+1) || i > 0 && e.Time < events[i-1].Time {
			t.Fatalf("event %d is %+v after %+v", i, e, events[max(i-1, 0)])
		}
		if e.Kind == history.Stall { // a loud machine
			stalls++
			continue
		}
		if e.Value != next[e.User] {
			t.Fatalf("user %v recorded %d where %d was next", e.User, e.Value, next[e.User])
		}
		next[e.User]++
	}
	if len(events)-stalls != users*each {
		t.Fatalf("got %d events, recorded %d", len(events), users*each)
	}
}

// When AppendFlushed returns, the event has been written, by whichever user.
func TestRecorderFlushes(t *testing.T) {
	w := &watched{}
	rec := NewRecorder(NewNodeConn(nil, w), FormatRecords, nil)
	const users, each = 16, 200
	var wg sync.WaitGroup
	for range users {
		wg.Go(func() {
			for range each {
				s := rec.AppendFlushed(&history.Event{Kind: history.Acquire, Phase: history.Ok})
				if w.last.Load() < s.Seq {
					t.Errorf("event %d had not been written", s.Seq)
				}
			}
		})
	}
	wg.Wait()
	if n := rec.groups(); n > users*each/2 {
		t.Errorf("%d events took %d writes: they do not share", users*each, n)
	}
	if err := rec.Close(); err != nil {
		t.Error(err)
	}
}

// watched is a writer that knows the highest sequence number for which Write has returned.
type watched struct{ last atomic.Uint32 }

func (w *watched) Write(b []byte) (int, error) {
	var e history.Event
	if err := history.DecodeRecord(b[len(b)-history.RecordSize:], &e); err != nil {
		return 0, err
	}
	time.Sleep(50 * time.Microsecond) // others gather meanwhile
	w.last.Store(e.Seq)
	return len(b), nil
}

func TestRecorderSendsTheRestSoon(t *testing.T) {
	rec, r, end := piped(t)
	defer r.Close()
	d := NewDecoder(r)
	var took []time.Duration
	for range 50 {
		began := time.Now()
		rec.Append(&history.Event{Kind: history.Release, Phase: history.Ok})
		if _, err := d.Next(); err != nil {
			t.Fatal(err)
		}
		took = append(took, time.Since(began))
	}
	end()
	slices.Sort(took)
	const soon = 100 * time.Millisecond // a hundred times what an idle machine takes; stalls delay a few of the fifty, not half of them
	if median := took[len(took)/2]; median > soon {
		t.Errorf("half of the events took %v and more", median)
	}
}

// If the reader does not read, users in a hold go on. Events without room are dropped and counted, and the history
// says so.
func TestRecorderDrops(t *testing.T) {
	out, in := io.Pipe()
	rec := NewRecorder(NewNodeConn(nil, in), FormatRecords, nil)
	read := func() Stamp { return rec.Append(&history.Event{Kind: history.Read, Phase: history.Invoke}) }
	read()
	begun := make([]byte, 1)
	if _, err := io.ReadFull(out, begun); err != nil { // the write has begun, and ends when the rest is read
		t.Fatal(err)
	}
	const lost = 5000
	for i := range room + lost {
		if s := read(); (s.Seq == 0) != (i >= room) || s.Time == 0 {
			t.Fatalf("event %d of %d got %+v", i, room, s)
		}
	}
	if !rec.Crowded() {
		t.Error("a full recorder does not hold back those who hold nothing")
	}
	if recorded, dropped := rec.Counts(); recorded != room+1 || dropped != lost {
		t.Errorf("%d recorded and %d dropped", recorded, dropped)
	}
	go func() {
		rec.Flush()
		read()
		if err := rec.Close(); err != nil {
			t.Error(err)
		}
		_ = in.Close()
	}()
	_, events, err := receiveAll(NewDecoder(io.MultiReader(bytes.NewReader(begun), out)))
	if err != nil {
		t.Fatal(err)
	}
	if told := events[len(events)-2]; len(events) != room+3 || told.Kind != history.Dropped || told.Value != lost {
		t.Errorf("of %d events the last but one is %+v, want %d dropped", len(events), told, lost)
	}
	for i, e := range events {
		if e.Seq != uint32(i+1) {
			t.Fatalf("event %d has number %d", i, e.Seq)
		}
	}
}

// slow is a writer whose next write waits until it is released, and that keeps what it is given from then on.
type slow struct {
	begun, letGo chan struct{}
	mu           sync.Mutex
	bytes        bytes.Buffer
}

func newSlow() *slow { return &slow{begun: make(chan struct{}, 100), letGo: make(chan struct{})} }

func (s *slow) Write(b []byte) (int, error) {
	s.begun <- struct{}{}
	<-s.letGo
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bytes.Write(b)
}

// stalls returns the recorded stalls and the events, when the recorder is closed.
func (s *slow) stalls(t *testing.T, rec *Recorder) (stalls, all []history.Event) {
	t.Helper()
	if err := rec.Close(); err != nil {
		t.Fatal(err)
	}
	_, all, err := receiveAll(NewDecoder(&s.bytes))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		if e.Kind == history.Stall {
			stalls = append(stalls, e)
		}
	}
	return stalls, all
}

// covered returns how much of a time the stalls cover. It fails if two of them overlap.
func covered(t *testing.T, stalls []history.Event, from, until int64) (sum int64) {
	t.Helper()
	var last int64
	for _, e := range stalls {
		if e.Time-e.Value < last-int64(time.Millisecond) { // its value is taken just before its time
			t.Errorf("a stall of %v tells again what is on record: %+v", time.Duration(e.Value), stalls)
		}
		last = e.Time
		sum += max(0, min(e.Time, until)-max(e.Time-e.Value, from))
	}
	return sum
}

// A user who waits for its event to be written did not run, although its process did: its next action is late by
// that.
func TestAUserBlockedInRecordingStoodStill(t *testing.T) {
	w := newSlow()
	rec := NewRecorder(NewNodeConn(nil, w), FormatRecords, nil)
	one, two := history.MakeUser(2, 5), history.MakeUser(2, 6)
	done := make(chan Stamp, 2)
	hold := func(u history.User) {
		s := rec.AppendFlushed(&history.Event{Kind: history.Acquire, Phase: history.Ok, User: u})
		rec.Append(&history.Event{Kind: history.Release, Phase: history.Invoke, User: u})
		done <- s
	}
	go hold(one)
	<-w.begun
	go hold(two) // its event waits for the write of the first
	for rec.pending() == 0 {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(2 * stallFrom)
	rec.Stood(one, int64(stallFrom)+1) // the process's pulse reports a shorter stall meanwhile
	time.Sleep(2 * stallFrom)
	before := clock.Mono()
	close(w.letGo)
	a, b := <-done, <-done
	stalls, all := w.stalls(t, rec)
	if got, want := covered(t, stalls, a.Time, before), before-a.Time; got < want-int64(time.Millisecond) {
		t.Errorf("users waited from %d and %d to %d or longer, recorded are %+v", a.Time, b.Time, before, stalls)
	}
	for _, e := range all {
		if e.Kind == history.Release && e.User == one {
			if got := covered(t, stalls, a.Time, e.Time); got < before-a.Time-int64(time.Millisecond) {
				t.Errorf("of a hold from %d to %d only %v are told as a stall", a.Time, e.Time, time.Duration(got))
			}
		}
	}
	if len(stalls) > 4 {
		t.Errorf("%d stalls are recorded: %+v", len(stalls), stalls)
	}
}

// A slow write that no user waits for delays no user.
func TestUnawaitedSlowWriteIsNoStall(t *testing.T) {
	w := newSlow()
	rec := NewRecorder(NewNodeConn(nil, w), FormatRecords, nil)
	rec.Append(&history.Event{Kind: history.Acquire, Phase: history.Invoke})
	<-w.begun
	time.Sleep(2 * stallFrom)
	close(w.letGo)
	if stalls, _ := w.stalls(t, rec); len(stalls) > 0 {
		t.Errorf("nobody waited, recorded is %+v", stalls)
	}
}

// Overlapping reports of the same stall are recorded once.
func TestAStallIsRecordedOnce(t *testing.T) {
	rec, r, end := piped(t)
	defer r.Close()
	from := clock.Mono() - int64(10*stallFrom)
	rec.Stood(0, int64(10*stallFrom))
	rec.Stood(0, int64(10*stallFrom))
	rec.Stood(0, int64(11*stallFrom))
	until := clock.Mono()
	go end()
	_, events, err := receiveAll(NewDecoder(r))
	if err != nil {
		t.Fatal(err)
	}
	told := int64(0)
	for _, e := range events { // more than one if the machine stalled between the calls
		told += e.Value
	}
	if got := covered(t, events, from, until); got < int64(10*stallFrom) || told > until-from {
		t.Errorf("a stall of %v is recorded as %+v", 10*stallFrom, events)
	}
}

type brokenWriter struct{}

var errBroken = errors.New("broken")

func (brokenWriter) Write([]byte) (int, error) { return 0, errBroken }

func TestRecorderReportsABrokenStream(t *testing.T) {
	rec := NewRecorder(NewNodeConn(nil, brokenWriter{}), FormatRecords, nil)
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() { rec.AppendFlushed(&history.Event{Kind: history.Acquire, Phase: history.Ok}) })
	}
	wg.Wait()
	if err := rec.Close(); !errors.Is(err, errBroken) {
		t.Errorf("got %v, want %v", err, errBroken)
	}
}

func TestNilRecorder(t *testing.T) {
	var rec *Recorder
	if s := rec.AppendFlushed(&history.Event{}); s != (Stamp{}) {
		t.Errorf("got %+v", s)
	}
	rec.Flush()
	if recorded, dropped := rec.Counts(); recorded != 0 || dropped != 0 || rec.Crowded() || rec.Err() != nil || rec.Close() != nil {
		t.Error("a recorder that is none has something to tell")
	}
}

func BenchmarkRecorderAppend(b *testing.B) {
	rec := NewRecorder(NewNodeConn(nil, io.Discard), FormatRecords, nil)
	b.ReportAllocs()
	e := history.Event{Kind: history.Acquire, Phase: history.Ok, Token: 1, Valid: 2, Value: 3}
	for b.Loop() {
		e.Op = 1
		rec.Append(&e)
	}
	_, dropped := rec.Counts()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
	b.ReportMetric(float64(dropped), "dropped")
	if err := rec.Close(); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkRecorderUsers has 50 users record as a lock cycle does, into a real pipe that a real decoder reads.
func BenchmarkRecorderUsers(b *testing.B) {
	rec, r, end := piped(b)
	defer r.Close()
	go func() { _, _, _ = drain(NewDecoder(r)) }()
	b.ReportAllocs()
	b.SetParallelism(25)
	b.RunParallel(func(pb *testing.PB) {
		e := history.Event{Kind: history.Acquire, Phase: history.Ok, Token: 1, Valid: 2, Value: 3}
		for pb.Next() {
			e.Op = 1
			rec.Append(&e)
			rec.AppendFlushed(&e)
			rec.AppendFlushed(&e)
			rec.Append(&e)
		}
	})
	b.ReportMetric(4*float64(b.N)/b.Elapsed().Seconds(), "events/s")
	b.ReportMetric(4*float64(b.N)/float64(rec.groups()), "events/write")
	end()
}

func (r *Recorder) pending() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.n
}

func (r *Recorder) groups() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.turn
}

func drain(d *Decoder) (frames, events int, err error) {
	for {
		item, err := d.Next()
		if err != nil {
			return frames, events, err
		}
		events += len(item.Events)
	}
}
