package history

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// some returns n events of one process with all fields set.
func some(n int) []Event {
	es := make([]Event, n)
	for i := range es {
		es[i] = Event{
			Time: int64(100 + 10*i), Seq: uint32(i + 1), Op: uint32(i + 1), User: MakeUser(1, i%3), Grant: uint32(i), Lock: uint16(i % 2),
			Kind: Acquire + Kind(i%14), Phase: Invoke + Phase(i%4), Mode: uint8(i % 2), Code: uint8(i % int(codeEnd)), Token: uint64(i) << 40,
			Valid: ValidUnknown + int64(i), Value: int64(-i),
		}
	}
	return es
}

func writeFile(t testing.TB, path string, h Header, es []Event) []byte {
	t.Helper()
	w, err := Create(path, h)
	if err != nil {
		t.Fatal(err)
	}
	for i := range es {
		if err := w.Append(&es[i]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// slow hands out a few bytes at a time, so that records straddle reads.
type slow struct {
	r io.Reader
	n int
}

func (s slow) Read(b []byte) (int, error) { return s.r.Read(b[:min(len(b), s.n)]) }
func (s slow) Close() error               { return nil }

// readAll reads a file's bytes, step bytes at a time, to its end or first error.
func readAll(b []byte, step int) ([]Event, error) {
	r := newReader("test.lqh", slow{bytes.NewReader(b), step}, readSize)
	if err := r.readHeader(); err != nil {
		return nil, err
	}
	var es []Event
	for {
		var e Event
		if err := r.Next(&e); err != nil {
			if again := r.Next(&e); again != err { //nolint:errorlint // it must be the very same
				return es, errors.New("another answer after the end")
			}
			return es, err
		}
		es = append(es, e)
	}
}

func testHeader() Header { return Header{Process: "client-1", Locks: []string{"lock-0", "lock-1"}} }

func TestReadsWrittenFile(t *testing.T) {
	es := some(200)
	b := writeFile(t, filepath.Join(t.TempDir(), "client-1.lqh"), testHeader(), es)
	for _, step := range []int{1, 63, 64, 65, 1000, 1 << 20} {
		got, err := readAll(b, step)
		if err != io.EOF || !slices.Equal(got, es) { //nolint:errorlint // Merge relies on the bare value
			t.Fatalf("%d bytes at a time: %d events of %d, %v", step, len(got), len(es), err)
		}
	}
}

// TestTheHeaderFillsWholeRecords, and no more of them than needed, for any length of its line.
func TestTheHeaderFillsWholeRecords(t *testing.T) {
	h := testHeader()
	for range RecordSize + 1 {
		h.Process += "1"
		b := writeFile(t, filepath.Join(t.TempDir(), "client-1.lqh"), h, nil)
		line, _, _ := bytes.Cut(b, []byte("\n"))
		if rest := len(line) - len(bytes.TrimRight(line, " ")); (len(line)+1)%RecordSize != 0 || rest >= RecordSize {
			t.Errorf("the header has %d bytes, of which %d are padding", len(line)+1, rest)
		}
	}
}

// TestEveryTruncationIsSeen cuts a file at every length: the events before the cut are read, and the cut is an error.
func TestEveryTruncationIsSeen(t *testing.T) {
	es := some(5)
	b := writeFile(t, filepath.Join(t.TempDir(), "client-1.lqh"), testHeader(), es)
	for n := range b {
		got, err := readAll(b[:n], 1<<20)
		if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "test.lqh") || !strings.Contains(err.Error(), "truncated") {
			t.Fatalf("cut to %d of %d bytes: %v", n, len(b), err)
		}
		if !slices.Equal(got, es[:len(got)]) {
			t.Fatalf("cut to %d bytes: other events", n)
		}
	}
}

// TestEveryFlippedBitIsSeen flips each bit of each record: the events before it are read, and then there is an error.
func TestEveryFlippedBitIsSeen(t *testing.T) {
	es := some(3)
	b := writeFile(t, filepath.Join(t.TempDir(), "client-1.lqh"), testHeader(), es)
	first := len(b) - (len(es)+1)*RecordSize
	for i := first; i < len(b); i++ {
		for bit := range 8 {
			c := bytes.Clone(b)
			c[i] ^= 1 << bit
			got, err := readAll(c, 1<<20)
			if at := (i - first) / RecordSize; !errors.Is(err, ErrCorrupt) || len(got) != at || !strings.Contains(err.Error(), fmt.Sprintf(": offset %d: ", first+at*RecordSize)) {
				t.Fatalf("bit %d of byte %d: %d events, %v", bit, i, len(got), err)
			}
		}
	}
}

func TestDamageOfOtherKinds(t *testing.T) {
	es := some(4)
	b := writeFile(t, filepath.Join(t.TempDir(), "client-1.lqh"), testHeader(), es)
	first := len(b) - (len(es)+1)*RecordSize
	record := func(e Event) []byte { return AppendRecord(nil, &e) }
	put := func(at int, e Event) []byte {
		return slices.Concat(b[:first+at*RecordSize], record(e), b[first+(at+1)*RecordSize:])
	}
	back, skip, lock := es[2], es[2], es[2]
	back.Time = 1
	skip.Seq++
	lock.Lock = 2
	for name, c := range map[string][]byte{
		"empty":              {},
		"no header":          []byte("hello\n"),
		"another version":    bytes.Replace(b, []byte(`"lockquake_history":1`), []byte(`"lockquake_history":9`), 1),
		"another size":       bytes.Replace(b, []byte(`"record_size":64`), []byte(`"record_size":72`), 1),
		"a long line":        bytes.Repeat([]byte{' '}, maxHeader+1),
		"time goes back":     put(2, back),
		"an event too many":  put(2, skip),
		"a lock too many":    put(2, lock),
		"an event missing":   slices.Concat(b[:first+RecordSize], b[first+2*RecordSize:]),
		"a wrong count":      put(4, Event{Time: 1000, Seq: 5, Op: 5, Kind: Clean, Phase: Info, Value: 3}),
		"more after the end": append(bytes.Clone(b), 0),
		"twice":              append(bytes.Clone(b), b[first:]...),
		"all zero":           append(bytes.Clone(b[:first]), make([]byte, 10*RecordSize)...),
	} {
		if _, err := readAll(c, 1<<20); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestOffsetIsAdded(t *testing.T) {
	h := testHeader()
	h.OffsetNS = 1000
	es := []Event{
		{Time: 10, Seq: 1, Op: 1, Kind: Acquire, Phase: Invoke},
		{Time: 20, Seq: 2, Op: 1, Kind: Acquire, Phase: Ok, Valid: 99, Value: 11},
		{Time: 30, Seq: 3, Op: 3, Kind: Renewed, Phase: Info, Valid: ValidEndless},
		{Time: 40, Seq: 4, Op: 4, Kind: Write, Phase: Invoke, Value: 7},
	}
	got, err := readAll(writeFile(t, filepath.Join(t.TempDir(), "c.lqh"), h, es), 1<<20)
	if !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	want := slices.Clone(es)
	for i := range want {
		want[i].Time += 1000
	}
	want[1].Valid, want[1].Value = 1099, 1011
	if !slices.Equal(got, want) {
		t.Fatalf("%+v", got)
	}
}

// TestMergeReadsAhead: histories longer than the read-ahead come whole, and one that is closed before its end is not
// read any further.
func TestMergeReadsAhead(t *testing.T) {
	dir := t.TempDir()
	const each = batches*batchSize/2 + 100
	for f := range 2 {
		var es []Event
		for i := range each {
			es = append(es, Event{Time: int64(2*i + f), Seq: uint32(i + 1), Op: 1, User: MakeUser(f, 0), Kind: Acquire, Phase: Ok})
		}
		name := string(rune('a' + f))
		writeFile(t, filepath.Join(dir, name+".lqh"), header(name), es)
	}
	for _, until := range []int{0, 1, batchSize, 2 * each} {
		m, err := OpenAll(dir)
		if err != nil {
			t.Fatal(err)
		}
		var e Event
		for i := range until {
			if h, err := m.Next(&e); err != nil || e.Time != int64(i) || h.Process != string(rune('a'+i%2)) {
				t.Fatalf("event %d is %+v of %v, %v", i, e, h, err)
			}
		}
		if until == 2*each {
			if _, err := m.Next(&e); !errors.Is(err, io.EOF) {
				t.Errorf("after the last: %v", err)
			}
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
		if _, err := m.Next(&e); until > 0 && !errors.Is(err, os.ErrClosed) {
			t.Errorf("closed after %d events, and then: %v", until, err)
		}
	}
}

func TestMergeIsASort(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(rt *rapid.T) {
		sub, err := os.MkdirTemp(dir, "")
		if err != nil {
			t.Fatal(err)
		}
		type placed struct {
			e    Event
			file int
		}
		var all []placed
		for f := range rapid.IntRange(1, 9).Draw(rt, "files") {
			var es []Event
			now := int64(0)
			for i := range rapid.IntRange(0, 12).Draw(rt, "events") {
				now += rapid.Int64Range(0, 3).Draw(rt, "gap")
				e := Event{Time: now, Seq: uint32(i + 1), Op: 1, User: MakeUser(f, 0), Kind: Acquire, Phase: Ok}
				es = append(es, e)
				all = append(all, placed{e, f})
			}
			writeFile(t, filepath.Join(sub, string(rune('a'+f))+".lqh"), header(string(rune('a'+f))), es)
		}
		slices.SortStableFunc(all, func(a, b placed) int {
			if a.e.Time != b.e.Time {
				return int(a.e.Time - b.e.Time)
			}
			return a.file - b.file
		})
		m, err := OpenAll(sub)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = m.Close() }()
		var e Event
		for i, want := range all {
			if _, err := m.Next(&e); err != nil || e != want.e {
				rt.Fatalf("event %d of %d is %+v (%v), want %+v", i, len(all), e, err, want.e)
			}
		}
		if _, err := m.Next(&e); !errors.Is(err, io.EOF) {
			rt.Fatalf("after the last: %v", err)
		}
	})
}

func TestMergeSaysWhichFileIsDamaged(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "client-1.lqh"), testHeader(), some(20))
	b := writeFile(t, filepath.Join(dir, "client-2.lqh"), header("client-2"), some(20))
	if err := os.WriteFile(filepath.Join(dir, "client-2.lqh"), b[:len(b)-3*RecordSize], 0o644); err != nil {
		t.Fatal(err)
	}
	m, err := OpenAll(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = m.Close() }()
	var e Event
	for err == nil {
		_, err = m.Next(&e)
	}
	if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "client-2.lqh") {
		t.Fatal(err)
	}
}

func TestMergeRefuses(t *testing.T) {
	if _, err := OpenAll(t.TempDir()); !errors.Is(err, ErrCorrupt) {
		t.Errorf("no files: %v", err)
	}
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "a.lqh"), header("a"), some(2))
	writeFile(t, filepath.Join(dir, "b.lqh"), Header{Process: "b", Locks: []string{"other", "lock-1"}}, some(2))
	if _, err := OpenAll(dir); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "b.lqh") {
		t.Errorf("other locks: %v", err)
	}
	dir = t.TempDir()
	writeFile(t, filepath.Join(dir, "client-1.lqh"), header("client-2"), some(2))
	if _, err := OpenAll(dir); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), `client-1.lqh: its header names the history of "client-2"`) {
		t.Errorf("another's name: %v", err)
	}
	if err := os.Remove(filepath.Join(dir, "client-1.lqh")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "client-1.lqh"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenAll(dir); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "client-1.lqh: it is a directory") {
		t.Errorf("a directory: %v", err)
	}
}

// TestReaderIsBounded: headers beyond the bounds of locks, offset and error are refused, as is an event whose time is
// out of range. A small file gets a small buffer.
func TestReaderIsBounded(t *testing.T) {
	for _, beyond := range []int64{0, 1} { // what is possible
		for name, h := range map[string]Header{
			"locks": {Locks: make([]string, maxLocks+beyond)}, "offset": {OffsetNS: maxTime + beyond}, "offset back": {OffsetNS: -maxTime - beyond},
			"error": {ErrorNS: maxError + beyond}, "negative error": {ErrorNS: -beyond},
		} {
			path := filepath.Join(t.TempDir(), "client-1.lqh")
			r := newReader(path, io.NopCloser(bytes.NewReader(writeFile(t, path, h, nil))), readSize)
			if err := r.readHeader(); (err == nil) != (beyond == 0) || err != nil && (!errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), path+": header: ")) {
				t.Errorf("%s, by %d beyond what is possible: %v", name, beyond, err)
			}
		}
	}
	for _, at := range []int64{maxTime + 1, -maxTime - 1} {
		b := writeFile(t, filepath.Join(t.TempDir(), "client-1.lqh"), Header{OffsetNS: maxTime}, []Event{{Time: at, Seq: 1, Kind: Stall, Phase: Info}})
		if es, err := readAll(b, 1000); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "no time of CLOCK_MONOTONIC") {
			t.Errorf("at %d: %v, %v", at, es, err)
		}
	}
	path := filepath.Join(t.TempDir(), "client-1.lqh")
	b := writeFile(t, path, testHeader(), some(3))
	r, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	if len(r.buf) > 2*len(b) {
		t.Errorf("room for %d bytes where there are %d", len(r.buf), len(b))
	}
}

// FuzzReader damages a file at random: reading it never panics, and ends in EOF or an error that wraps ErrCorrupt.
func FuzzReader(f *testing.F) {
	b := writeFile(f, filepath.Join(f.TempDir(), "client-1.lqh"), testHeader(), some(6))
	f.Add(b)
	f.Add(b[:len(b)-1])
	f.Add(b[:100])
	f.Add([]byte("{}\n"))
	f.Add([]byte(`{"lockquake_history":1,"record_size":64,"offset_ns":-9}` + "\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		es, err := readAll(b, 1000)
		if !errors.Is(err, io.EOF) && !errors.Is(err, ErrCorrupt) {
			t.Fatal(err)
		}
		if errors.Is(err, io.EOF) && len(b) < (len(es)+1)*RecordSize {
			t.Fatalf("%d events out of %d bytes", len(es), len(b))
		}
	})
}

func BenchmarkMerge(b *testing.B) {
	dir := b.TempDir()
	const n = 100_000
	for f := range 8 {
		es := some(n)
		for i := range es {
			es[i].Time += int64(f)
		}
		writeFile(b, filepath.Join(dir, string(rune('a'+f))+".lqh"), header(string(rune('a'+f))), es)
	}
	b.SetBytes(8 * n * RecordSize)
	for b.Loop() {
		m, err := OpenAll(dir)
		if err != nil {
			b.Fatal(err)
		}
		var e Event
		for err == nil {
			_, err = m.Next(&e)
		}
		if !errors.Is(err, io.EOF) || m.Close() != nil {
			b.Fatal(err)
		}
	}
}

// breaks is a file with a read error at its end.
type breaks struct{ io.Reader }

var errBreaks = errors.New("the disk is gone")

func (b breaks) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if n == 0 && err != nil {
		return 0, errBreaks
	}
	return n, nil
}

func (breaks) Close() error { return nil }

func TestAReadThatFailsIsNoEnd(t *testing.T) {
	b := writeFile(t, filepath.Join(t.TempDir(), "client-1.lqh"), testHeader(), some(3))
	for _, n := range []int{len(b), len(b) - RecordSize, len(b) - 1, 20} {
		r := newReader("test.lqh", breaks{bytes.NewReader(b[:n])}, readSize)
		err := r.readHeader()
		for e := (Event{}); err == nil; {
			err = r.Next(&e)
		}
		if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), errBreaks.Error()) {
			t.Errorf("%d of %d bytes: %v", n, len(b), err)
		}
	}
}

// TestAGapIsSeenBehindARightCount leaves one event out, and lets the trailer count the others.
func TestAGapIsSeenBehindARightCount(t *testing.T) {
	es := some(4)
	b := writeFile(t, filepath.Join(t.TempDir(), "client-1.lqh"), testHeader(), slices.Delete(es, 1, 2))
	if got, err := readAll(b, 1<<20); !errors.Is(err, ErrCorrupt) || len(got) != 1 {
		t.Errorf("%d events, %v", len(got), err)
	}
}

func TestShiftMovesTimesAlone(t *testing.T) {
	for name, c := range map[string]struct{ e, want Event }{
		"a grant":             {Event{Kind: Acquire, Phase: Ok, Time: 10, Valid: 30, Value: 5}, Event{Time: 110, Valid: 130, Value: 105}},
		"a closed loop":       {Event{Kind: Acquire, Phase: Invoke, Time: 10}, Event{Time: 110}},
		"an open loop":        {Event{Kind: Acquire, Phase: Invoke, Time: 10, Value: 8}, Event{Time: 110, Value: 108}},
		"a renewal":           {Event{Kind: Renew, Phase: Ok, Time: 10, Valid: 30}, Event{Time: 110, Valid: 130}},
		"what was learned":    {Event{Kind: Renewed, Phase: Info, Time: 10, Valid: 30, Value: 9}, Event{Time: 110, Valid: 130, Value: 109}},
		"a loss":              {Event{Kind: Lost, Phase: Info, Time: 10, Valid: 8, Value: 9}, Event{Time: 110, Valid: 108, Value: 109}},
		"a deadline":          {Event{Kind: Release, Phase: Invoke, Time: 10, Valid: 30}, Event{Time: 110, Valid: 130}},
		"an outcome":          {Event{Kind: Release, Phase: Ok, Time: 10}, Event{Time: 110}},
		"a reason":            {Event{Kind: Reason, Phase: Info, Time: 10, Value: 30}, Event{Time: 110, Value: 30}},
		"what has no end":     {Event{Kind: Renewed, Phase: Info, Time: 10, Valid: ValidEndless}, Event{Time: 110, Valid: ValidEndless}},
		"what nobody knows":   {Event{Kind: Renewed, Phase: Info, Time: 10, Valid: ValidUnknown}, Event{Time: 110, Valid: ValidUnknown}},
		"no validity":         {Event{Kind: Renew, Phase: Fail, Time: 10}, Event{Time: 110}},
		"an effect's number":  {Event{Kind: EffectWrite, Phase: Ok, Time: 10, Valid: 30, Value: 5}, Event{Time: 110, Valid: 30, Value: 5}},
		"a value":             {Event{Kind: Write, Phase: Invoke, Time: 10, Value: 5}, Event{Time: 110, Value: 5}},
		"the length of stall": {Event{Kind: Stall, Phase: Info, Time: 10, Value: 5}, Event{Time: 110, Value: 5}},
	} {
		got := c.e
		Shift(&got, &Header{OffsetNS: 100})
		if got.Time != c.want.Time || got.Valid != c.want.Valid || got.Value != c.want.Value {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

func TestUnknownRecordIsRefused(t *testing.T) {
	good := Event{Kind: Acquire, Phase: Ok, Code: CodeNone}
	for name, change := range map[string]func(*Event){
		"none":    func(*Event) {},
		"kind":    func(e *Event) { e.Kind = kindEnd },
		"no kind": func(e *Event) { e.Kind = KindNone },
		"phase":   func(e *Event) { e.Phase = phaseEnd },
		"code":    func(e *Event) { e.Code = codeEnd },
	} {
		e := good
		change(&e)
		var got Event
		if err := DecodeRecord(AppendRecord(nil, &e), &got); (err == nil) != (name == "none") || err != nil && !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTheTrailerCountsWhateverWayEventsCame(t *testing.T) {
	path := filepath.Join(t.TempDir(), "client-1.lqh")
	w, err := Create(path, testHeader())
	if err != nil {
		t.Fatal(err)
	}
	es := some(5)
	var raw []byte
	for i := range es[:4] {
		raw = AppendRecord(raw, &es[i])
	}
	if err := errors.Join(w.AppendRecords(raw, &es[3]), w.Append(&es[4]), w.Close()); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := readAll(b, 1<<20); !errors.Is(err, io.EOF) || !slices.Equal(got, es) {
		t.Errorf("%d events, %v", len(got), err)
	}
	var end Event
	if err := DecodeRecord(b[len(b)-RecordSize:], &end); err != nil || end.Kind != Clean || end.Seq != 6 || end.Op != 6 || end.Value != 5 {
		t.Errorf("the trailer is %+v, %v", end, err)
	}
	if _, err := Create(path, testHeader()); !errors.Is(err, os.ErrExist) {
		t.Errorf("a history was written over another: %v", err)
	}
}

func TestMergeRefusesADamagedFirstEvent(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a", "b"} {
		h := testHeader()
		h.Process = name
		writeFile(t, filepath.Join(dir, name+".lqh"), h, some(3))
	}
	b, err := os.ReadFile(filepath.Join(dir, "b.lqh"))
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)-4*RecordSize] ^= 1
	if err := os.WriteFile(filepath.Join(dir, "b.lqh"), b, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenAll(dir); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "b.lqh") {
		t.Errorf("it was opened: %v", err)
	}
}
