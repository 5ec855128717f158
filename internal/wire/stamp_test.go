package wire

import (
	"bytes"
	"io"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/clock"
)

// recorded returns a recorder, and a function that closes it and returns its events.
func recorded(t *testing.T) (rec *Recorder, events func() []history.Event) {
	t.Helper()
	var out bytes.Buffer
	rec = NewRecorder(NewNodeConn(nil, &out), FormatRecords, nil)
	return rec, func() []history.Event {
		t.Helper()
		if err := rec.Close(); err != nil {
			t.Fatal(err)
		}
		_, events, err := receiveAll(NewDecoder(&out))
		if err != nil {
			t.Fatal(err)
		}
		return events
	}
}

// TestStampIsTheEventsOwn compares the returned stamp with the recorded event, for every way to record.
func TestStampIsTheEventsOwn(t *testing.T) {
	rec, events := recorded(t)
	var stamps []Stamp
	before := clock.Mono()
	for range 100 {
		for _, record := range []func(*history.Event) Stamp{
			rec.Append, rec.AppendFlushed, func(e *history.Event) Stamp { return rec.AppendAt(e, clock.Mono()) },
		} {
			e := history.Event{Kind: history.Acquire, Phase: history.Invoke}
			s := record(&e)
			if e.Seq != s.Seq || e.Time != s.Time || e.Op != s.Seq || e.Time < before {
				t.Fatalf("stamp %+v of %+v", s, e)
			}
			stamps = append(stamps, s)
		}
	}
	stamps = append(stamps, rec.Append(&history.Event{Kind: history.Acquire, Phase: history.Ok, Op: 1}))
	all := events()
	all = slices.DeleteFunc(all, func(e history.Event) bool { return e.Kind == history.Stall }) // which a busy machine adds
	for i, e := range all {
		if (Stamp{Seq: e.Seq, Time: e.Time}) != stamps[i] || i < len(all)-1 && e.Op != e.Seq || i == len(all)-1 && e.Op != 1 {
			t.Fatalf("stamp %+v of %+v", stamps[i], e)
		}
	}
	if len(all) != len(stamps) {
		t.Errorf("%d events, %d stamps", len(all), len(stamps))
	}
}

// TestTimesOfAProcessNeverGoBack records what happened before the last event, and what is stamped while the clock is behind it.
func TestTimesOfAProcessNeverGoBack(t *testing.T) {
	rec, events := recorded(t)
	ahead := clock.Mono() + int64(time.Hour)
	rec.AppendAt(&history.Event{Kind: history.Stall}, ahead)
	rec.AppendAt(&history.Event{Kind: history.Stall}, ahead-int64(time.Minute))
	rec.Append(&history.Event{Kind: history.Stall})
	rec.AppendAt(&history.Event{Kind: history.Stall}, ahead+1)
	for i, e := range events() {
		if want := ahead + int64(i/3); e.Time != want {
			t.Errorf("event %d is %s off", i, time.Duration(e.Time-want))
		}
	}
}

// TestDropsAreReportedOnce records an event after some that found no room.
func TestDropsAreReportedOnce(t *testing.T) {
	rec, events := recorded(t)
	rec.mu.Lock()
	rec.silent = 3
	rec.mu.Unlock()
	for range 2 {
		rec.Append(&history.Event{Kind: history.Read, Phase: history.Invoke, User: history.MakeUser(1, 2)})
	}
	all := events()
	if len(all) != 3 || all[0].Kind != history.Dropped || all[0].Value != 3 || all[0].User != history.MakeUser(1, 2) ||
		all[1].Kind != history.Read || all[2].Kind != history.Read {
		t.Errorf("recorded %+v", all)
	}
}

// TestAppendAtWaitsForRoom records more than there is room for.
func TestAppendAtWaitsForRoom(t *testing.T) {
	rec := NewRecorder(NewNodeConn(nil, io.Discard), FormatRecords, nil)
	for i := range room + 10 {
		if s := rec.AppendAt(&history.Event{Kind: history.Read}, 0); s.Seq != uint32(i+1) {
			t.Fatalf("event %d has number %d", i+1, s.Seq)
		}
	}
	if err := rec.Close(); err != nil {
		t.Error(err)
	}
}

// TestFlushWaitsForTheWriteUnderWay flushes while another user's event is being written, and no other event waits.
func TestFlushWaitsForTheWriteUnderWay(t *testing.T) {
	out, in := io.Pipe()
	rec := NewRecorder(NewNodeConn(nil, in), FormatRecords, nil)
	go rec.AppendFlushed(&history.Event{Kind: history.Acquire, Phase: history.Ok})
	if _, err := io.ReadFull(out, make([]byte, 1)); err != nil { // the write has begun, and ends when the rest is read
		t.Fatal(err)
	}
	flushed := make(chan struct{})
	go func() { rec.Flush(); close(flushed) }()
	select {
	case <-flushed:
		t.Error("flushed before the write returned")
	case <-time.After(20 * time.Millisecond):
	}
	go func() { _, _ = io.Copy(io.Discard, out) }()
	<-flushed
	if err := rec.Close(); err != nil {
		t.Error(err)
	}
	_ = in.Close()
}

// TestCloseSendsWhatWaits closes at once after an event that no user waits for.
func TestCloseSendsWhatWaits(t *testing.T) {
	for range 50 {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		rec := NewRecorder(NewNodeConn(nil, w), FormatRecords, nil)
		rec.Append(&history.Event{Kind: history.Release, Phase: history.Ok})
		rec.Append(&history.Event{Kind: history.Release, Phase: history.Ok})
		if err := rec.Close(); err != nil {
			t.Error(err)
		}
		_ = w.Close()
		if _, events, err := receiveAll(NewDecoder(r)); err != nil || len(events) != 2 {
			t.Fatalf("%d events of 2, %v", len(events), err)
		}
		_ = r.Close()
	}
}
