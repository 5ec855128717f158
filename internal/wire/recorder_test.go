package wire

import (
	"errors"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockquake/lockquake/history"
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
	if len(events) != users*each {
		t.Fatalf("got %d events, recorded %d", len(events), users*each)
	}
	next := map[history.User]int64{}
	for i, e := range events {
		if e.Seq != uint32(i+1) || i > 0 && e.Time < events[i-1].Time {
			t.Fatalf("event %d is %+v after %+v", i, e, events[max(i-1, 0)])
		}
		if e.Value != next[e.User] {
			t.Fatalf("user %v recorded %d where %d was next", e.User, e.Value, next[e.User])
		}
		next[e.User]++
	}
}

// What AppendFlushed returned for has been written, whoever wrote it.
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
	var worst time.Duration
	for range 50 {
		began := time.Now()
		rec.Append(&history.Event{Kind: history.Release, Phase: history.Ok})
		if _, err := d.Next(); err != nil {
			t.Fatal(err)
		}
		worst = max(worst, time.Since(began))
	}
	end()
	if worst > 200*time.Millisecond { // 1 ms on a machine that does nothing else
		t.Errorf("an event took %v", worst)
	}
}

// A reader that does not read: users in a hold go on, what finds no room is dropped and counted, and the history says so.
func TestRecorderDrops(t *testing.T) {
	rec, r, end := piped(t)
	defer r.Close()
	const all = 2*room + 5000 // one room may be on its way into the pipe
	for range all {
		rec.Append(&history.Event{Kind: history.Read, Phase: history.Invoke})
	}
	if !rec.Crowded() {
		t.Error("a full recorder does not hold back those who hold nothing")
	}
	recorded, dropped := rec.Counts()
	if dropped == 0 || recorded+dropped != all {
		t.Fatalf("%d recorded and %d dropped of %d", recorded, dropped, all)
	}
	if s := rec.Append(&history.Event{Kind: history.Read, Phase: history.Invoke}); s.Seq != 0 {
		t.Errorf("an event without room got the number %d", s.Seq)
	}
	dropped++
	go func() {
		rec.Flush()
		rec.Append(&history.Event{Kind: history.Read, Phase: history.Ok})
		end()
	}()
	_, events, err := receiveAll(NewDecoder(r))
	if err != nil {
		t.Fatal(err)
	}
	told := events[len(events)-2]
	if told.Kind != history.Dropped || told.Value != dropped {
		t.Errorf("the history tells %v of %d, want dropped of %d", told.Kind, told.Value, dropped)
	}
	for i, e := range events {
		if e.Seq != uint32(i+1) {
			t.Fatalf("event %d has number %d", i, e.Seq)
		}
	}
}

type brokenWriter struct{}

var errBroken = errors.New("broken")

func (brokenWriter) Write([]byte) (int, error) { return 0, errBroken }

func TestRecorderTellsOfBrokenStream(t *testing.T) {
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

// BenchmarkRecorderUsers is 50 users who record as a lock cycle does, into a real pipe with a real decoder behind it.
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
