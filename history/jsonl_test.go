package history

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

var tableOfLocks = []string{"lock-0", "lock-1", `a "quoted" lock`}

// drawEvent draws any event that is valid in a file.
func drawEvent(t *rapid.T) Event {
	valid := rapid.OneOf(rapid.Int64(), rapid.SampledFrom([]int64{0, ValidEndless, ValidUnknown})).Draw(t, "valid")
	return Event{
		Time:  rapid.Int64().Draw(t, "time"),
		Seq:   rapid.Uint32().Draw(t, "seq"),
		Op:    rapid.Uint32().Draw(t, "op"),
		User:  User(rapid.Uint32().Draw(t, "user")),
		Grant: rapid.Uint32().Draw(t, "grant"),
		Lock:  rapid.Uint16().Draw(t, "lock"),
		Kind:  Kind(rapid.IntRange(1, int(kindEnd)-1).Draw(t, "kind")),
		Phase: Phase(rapid.IntRange(0, int(phaseEnd)-1).Draw(t, "phase")),
		Mode:  uint8(rapid.IntRange(0, 1).Draw(t, "mode")),
		Code:  uint8(rapid.IntRange(0, int(codeEnd)-1).Draw(t, "code")),
		Token: rapid.Uint64().Draw(t, "token"),
		Valid: valid,
		Value: rapid.Int64().Draw(t, "value"),
		Tries: rapid.Uint32().Draw(t, "tries"),
	}
}

func TestJSONLineRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := drawEvent(t)
		line := AppendJSON(nil, &want, "client-1", tableOfLocks)
		var l Line
		dec := json.NewDecoder(bytes.NewReader(line))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&l); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		got, err := l.Event(tableOfLocks)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if got != want {
			t.Fatalf("%s\n got %+v\nwant %+v", line, got, want)
		}
		again, err := json.Marshal(l)
		if err != nil {
			t.Fatal(err)
		}
		var l2 Line
		if err := json.Unmarshal(again, &l2); err != nil || l2 != l {
			t.Fatalf("%s came back as %+v (%v)", again, l2, err)
		}
	})
}

func TestRecordRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := drawEvent(t)
		b := AppendRecord(nil, &want)
		var got Event
		if err := DecodeRecord(b, &got); err != nil || got != want {
			t.Fatalf("got %+v (%v), want %+v", got, err, want)
		}
		b[rapid.IntRange(0, RecordSize-1).Draw(t, "byte")] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
		if err := DecodeRecord(b, &got); err == nil {
			t.Fatal("a flipped bit was not noticed")
		}
	})
}

func TestJSONLineRefuses(t *testing.T) {
	good := Line{Kind: "acquire", Phase: "ok", User: "client-1/0", Lock: "lock-0"}
	for want, change := range map[string]func(*Line){
		"unknown kind":  func(l *Line) { l.Kind = "aquire" },
		`kind "none"`:   func(l *Line) { l.Kind = "none" },
		"unknown phase": func(l *Line) { l.Phase = "maybe" },
		"unknown code":  func(l *Line) { l.Code = "tired" },
		"unknown mode":  func(l *Line) { l.Mode = "both" },
		"unknown lock":  func(l *Line) { l.Lock = "lock-9" },
		"user is":       func(l *Line) { l.User = "client-0/0" },
	} {
		l := good
		change(&l)
		if _, err := l.Event(tableOfLocks); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: got %v, want an error with %q", l, err, want)
		}
	}
	if err := json.Unmarshal([]byte(`{"valid":"soon"}`), &good); err == nil {
		t.Error(`valid "soon" was accepted`)
	}
}

func TestWriteJSONL(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, events ...Event) {
		w, err := Create(filepath.Join(dir, name+".lqh"), Header{Process: name, Locks: tableOfLocks})
		if err != nil {
			t.Fatal(err)
		}
		for i := range events {
			events[i].Seq = uint32(i + 1)
			if err := w.Append(&events[i]); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	write("client-1",
		Event{Time: 10, Op: 1, Kind: Acquire, Phase: Invoke},
		Event{Time: 30, Op: 1, Grant: 1, Kind: Acquire, Phase: Ok, Token: 7, Valid: ValidEndless, Value: 11})
	write("register", Event{Time: 20, Kind: EffectWrite, Phase: Fail, Code: CodeFenced, Lock: 1, User: MakeUser(2, 5), Token: 3, Value: 9})

	m, err := OpenAll(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	var out bytes.Buffer
	if err := WriteJSONL(&out, m); err != nil {
		t.Fatal(err)
	}
	want := `{"time":10,"process":"client-1","seq":1,"op":1,"user":"client-1/0","kind":"acquire","phase":"invoke","lock":"lock-0"}
{"time":20,"process":"register","seq":1,"op":0,"user":"client-3/5","kind":"effect-write","phase":"fail","lock":"lock-1","code":"fenced","token":3,"value":9}
{"time":30,"process":"client-1","seq":2,"op":1,"user":"client-1/0","kind":"acquire","phase":"ok","lock":"lock-0","grant":1,"token":7,"valid":"endless","value":11}
`
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", out.String(), want)
	}
}

func TestWriteJSONLReportsDamage(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "client-1.lqh")
	w, err := Create(path, Header{Process: "client-1", Locks: tableOfLocks})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		if err := w.Append(&Event{Time: int64(i), Seq: uint32(i + 1), Kind: Acquire, Phase: Invoke}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, info.Size()-RecordSize); err != nil {
		t.Fatal(err)
	}
	m, err := OpenAll(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	var out bytes.Buffer
	if err := WriteJSONL(&out, m); err == nil || strings.Count(out.String(), "\n") != 3 {
		t.Errorf("got error %v after\n%s", err, out.String())
	}
}

func BenchmarkAppendJSON(b *testing.B) {
	e := Event{Time: 1 << 50, Seq: 1000, Op: 999, User: MakeUser(3, 4), Grant: 999, Kind: Acquire, Phase: Ok, Token: 77, Valid: 1 << 51, Value: 1 << 50}
	var buf []byte
	b.ReportAllocs()
	for b.Loop() {
		buf = AppendJSON(buf[:0], &e, "client-4", tableOfLocks)
	}
}

// TestUnknownValuesHaveNames, because error messages contain it.
func TestUnknownValuesHaveNames(t *testing.T) {
	if KindNone.Known() || kindEnd.Known() || PhaseNone.Known() || phaseEnd.Known() {
		t.Error("what is no kind or phase is known")
	}
	for _, c := range []struct{ got, want string }{
		{KindNone.String(), "none"},
		{kindEnd.String(), fmt.Sprintf("kind-%d", uint8(kindEnd))},
		{CodeName(0), ""},
		{CodeName(uint8(len(codeNames))), fmt.Sprintf("code-%d", len(codeNames))},
		{PhaseNone.String(), "none"},
		{phaseEnd.String(), fmt.Sprintf("phase-%d", uint8(phaseEnd))},
	} {
		if c.got != c.want {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
}
