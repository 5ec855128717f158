package scenarios

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "rewrite the golden files")

const small = `name: small
claim: It does what it says.
backend: {use: memory}
workload: {use: counter}
`

// mistakes returns texts with one mistake each. Each name is followed by its text; the messages are in
// testdata/mistakes.golden.
func mistakes(t *testing.T) (names, texts []string) {
	t.Helper()
	data, err := os.ReadFile("testdata/mistakes.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range strings.Split(string(data), "=== ")[1:] {
		name, text, _ := strings.Cut(part, "\n")
		names, texts = append(names, name), append(texts, strings.ReplaceAll(text, "SMALL\n", small))
	}
	return names, texts
}

func golden(t *testing.T, file, got string) {
	t.Helper()
	path := filepath.Join("testdata", file)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got == string(want) {
		return
	}
	g, w := strings.Split(got, "\n"), strings.Split(string(want), "\n")
	for i := range g {
		if i >= len(w) || g[i] != w[i] {
			t.Fatalf("%s:%d: got\n%s\nwant\n%s", file, i+1, g[i], strings.Join(w[min(i, len(w)):min(i+1, len(w))], ""))
		}
	}
	t.Fatalf("%s: got %d lines, want %d", file, len(g), len(w))
}

func TestMistakesAreRefused(t *testing.T) {
	var out strings.Builder
	names, texts := mistakes(t)
	for i, text := range texts {
		_, err := Parse([]byte(text), "x.yaml")
		var e *Error
		if !errors.As(err, &e) {
			t.Errorf("%s: %v is not an *Error", names[i], err)
			continue
		}
		if e.Message == "" || strings.Contains(e.Message, "\n") {
			t.Errorf("%s: the message is not one line: %q", names[i], e.Message)
		}
		out.WriteString("=== " + names[i] + "\n" + err.Error() + "\n")
	}
	golden(t, "mistakes.golden", out.String())
}

func TestDefaults(t *testing.T) {
	s, err := Parse([]byte(small), "x.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if s.Backend.TTL != 10*time.Second || s.Backend.Nodes != 0 || s.Backend.Lock != "" {
		t.Errorf("backend %+v", s.Backend)
	}
	w := s.Workload
	if w.Clients != 1 || w.Users != 1 || w.Timeout != 10*time.Second || w.Resource.Guard != "none" || w.Check != "" || w.Renew {
		t.Errorf("workload %+v", w)
	}
	if s.Run != (Run{For: 30 * time.Second, Settle: time.Second}) {
		t.Errorf("run %+v", s.Run)
	}
	if len(s.Expect) > 0 { // the judge adds its defaults
		t.Errorf("expect %+v", s.Expect)
	}
}

func TestEverythingIsRead(t *testing.T) {
	s, err := Parse([]byte(`
name: all
claim: One of each.
source: a book
backend: {use: redis, lock: set-px-lua, nodes: 1, ttl: 2s, persistence: always}
workload: {use: counter, clients: 3, users: 2, renew: true, check: validity, timeout: 1500ms, hold: 50ms,
           resource: {use: register, guard: fence, port: 7}}
chaos:
  - {use: restart, on: redis-1, at: 1s, every: 5s, jitter: 250ms, delay: 100ms}
steps:
  - {do: acquire, user: A, lock: lock-1, async: true, within: 3s}
  - {do: write, user: A, value: -7, outcome: any}
  - {do: arm, user: A, point: set-done, action: wait}
  - {await: point, user: A, point: set-done}
  - {do: continue, user: A, point: set-done}
  - {inject: restart, on: redis-1, as: crash, delay: 1s}
  - {heal: crash}
  - {await: event, event: acquire ok, user: A}
  - {await: validity-over, user: A}
  - {await: fact, fact: role, node: redis-1, is: master}
  - {await: elapsed, for: 200ms}
run: {for: 20s, seed: 18446744073709551615, settle: 2s}
expect: {double_grants: ">0", unavailability_ms_max: "<1.5s", lost_updates: 0, share: ">5%", judged: ">=5"}
`), "x.yaml")
	if err != nil {
		t.Fatal(err)
	}
	own := struct{ Persistence string }{}
	if err := s.Backend.Params.Decode(&own); err != nil || own.Persistence != "always" {
		t.Errorf("backend's own: %+v, %v", own, err)
	}
	var hold struct{ Hold time.Duration }
	if err := s.Workload.Params.Decode(&hold); err != nil || hold.Hold != 50*time.Millisecond {
		t.Errorf("workload's own: %+v, %v", hold, err)
	}
	var port struct{ Port int }
	if err := s.Workload.Resource.Params.Decode(&port); err != nil || port.Port != 7 {
		t.Errorf("resource's own: %+v, %v", port, err)
	}
	var delay struct{ Delay time.Duration }
	if err := s.Chaos[0].Params.Decode(&delay); err != nil || delay.Delay != 100*time.Millisecond {
		t.Errorf("fault's own: %+v, %v", delay, err)
	}
	if err := s.Steps[5].Params.Decode(&delay); err != nil || delay.Delay != time.Second {
		t.Errorf("injected fault's own: %+v, %v", delay, err)
	}
	if got := s.Steps[5].Params.String(); got != "delay: 1s" {
		t.Errorf("parameters as text: %q", got)
	}
	in := s.Chaos[0]
	if in.Use != "restart" || in.On != "redis-1" || in.At != time.Second || in.Every != 5*time.Second || in.Jitter != 250*time.Millisecond {
		t.Errorf("injection %+v", in)
	}
	if a := s.Steps[0]; a.Do != "acquire" || a.User != "A" || a.Lock != "lock-1" || !a.Async || a.Within != 3*time.Second || a.Outcome != "ok" || a.Line != 11 {
		t.Errorf("acquire %+v", a)
	}
	if w := s.Steps[1]; w.Value != -7 || w.Outcome != "any" || w.Lock != "lock-0" || w.Within != 10*time.Second {
		t.Errorf("write %+v", w)
	}
	if f := s.Steps[9]; f.Await != "fact" || f.Fact != "role" || f.Node != "redis-1" || f.Is != "master" {
		t.Errorf("fact %+v", f)
	}
	if s.Run.Seed != 1<<64-1 || s.Workload.Check != "validity" || !s.Workload.Renew {
		t.Errorf("run %+v, workload %+v", s.Run, s.Workload)
	}
	want := []Expectation{
		{Name: "double_grants", Op: ">", Text: ">0"},
		{Name: "unavailability_ms_max", Op: "<", Value: 1500, Unit: "ms", Text: "<1.5s"},
		{Name: "lost_updates", Op: "=", Text: "0"},
		{Name: "share", Op: ">", Value: 5, Unit: "%", Text: ">5%"},
		{Name: "judged", Op: ">=", Value: 5, Text: ">=5"},
	}
	if !reflect.DeepEqual(s.Expect, want) {
		t.Errorf("expect\n%+v, want\n%+v", s.Expect, want)
	}
}

// loose is a text that may be written as a number.
type loose string

func (l *loose) UnmarshalText(b []byte) error { *l = loose(b); return nil }

func TestTextThatMayBeANumber(t *testing.T) {
	for text, want := range map[string]loose{"3.4": "3.4", `"3.4"`: "3.4", "7": "7", "built-in": "built-in"} {
		p, err := ParseParams("{version: " + text + "}")
		if err != nil {
			t.Fatal(err)
		}
		var got struct {
			Version loose `yaml:"version"`
		}
		if err := p.Decode(&got); err != nil || got.Version != want {
			t.Errorf("%s: %q, %v", text, got.Version, err)
		}
	}
}

func TestParamsAreStrict(t *testing.T) {
	type nested struct {
		Delay time.Duration `yaml:"delay"`
	}
	type own struct {
		Hold  time.Duration `yaml:"hold"`
		Rate  float64       `yaml:"rate"`
		Count int8          `yaml:"count"`
		Ok    bool          `yaml:"ok"`
		Word  string        `yaml:"word"`
		List  []string      `yaml:"list"`
		Retry nested        `yaml:"retry"`
	}
	var out strings.Builder
	for _, params := range []string{
		"hold: 50", "hold: 50 ms", "hold: -1s", "hold: soon", "hold: 1.5", "hold: [1s]", "hold:", "hlod: 1s", "zzzzzz: 1",
		"rate: fast", "count: 1.5", "count: 300", "count: x", "ok: yes", "ok: 1", "word: 5", "list: a", "list: [a, 5]",
		"retry: 5ms", "retry: {dely: 5ms}", "retry: {delay: 5}", "clients: 3, hold: 1", "users: 0x",
	} {
		s, err := Parse([]byte(strings.Replace(small, "use: counter", "use: counter, "+params, 1)), "x.yaml")
		if err == nil {
			err = s.Workload.Params.Decode(&own{})
		}
		if err == nil {
			t.Errorf("%q was taken", params)
			continue
		}
		out.WriteString("=== " + params + "\n" + err.Error() + "\n")
	}
	golden(t, "params.golden", out.String())

	s, err := Parse([]byte(strings.Replace(small, "use: counter", `use: counter, hold: 1h2m3.5s, rate: 3, count: -5, ok: true,
  word: "5", list: [a, b], retry: {delay: 5us}`, 1)), "x.yaml")
	if err != nil {
		t.Fatal(err)
	}
	got := own{Rate: 1}
	want := own{
		Hold: time.Hour + 2*time.Minute + 3500*time.Millisecond, Rate: 3, Count: -5, Ok: true, Word: "5",
		List: []string{"a", "b"}, Retry: nested{5 * time.Microsecond},
	}
	if err := s.Workload.Params.Decode(&got); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	got = own{Rate: 1}
	if err := (Params{}).Decode(&got); err != nil || got.Rate != 1 {
		t.Errorf("no parameters: %+v, %v", got, err)
	}
}

func TestErrorfPointsAtTheKey(t *testing.T) {
	s, err := Parse([]byte(small+"chaos:\n  - {use: pause, on: holdr, at: 1s}\n"), "x.yaml")
	if err != nil {
		t.Fatal(err)
	}
	want := "x.yaml:6:22: chaos.0.on: there is no target \"holdr\"\n" +
		"   6 |   - {use: pause, on: holdr, at: 1s}\n     |                      ^"
	if got := s.Errorf("chaos.0.on", "there is no target %q", "holdr").Error(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	// The error for a missing key points at its section.
	if got := s.Errorf("backend.lock", "which").Error(); !strings.HasPrefix(got, "x.yaml:3:10: backend.lock: which") {
		t.Errorf("got\n%s", got)
	}
	if got := (Scenario{File: "y"}).Errorf("backend.lock", "which").Error(); got != "y: backend.lock: which" {
		t.Errorf("got %q", got)
	}
}

func TestALineThatFillsTheScreenIsNotShown(t *testing.T) {
	for n, shown := range map[int]bool{100: true, 100_000: false} {
		_, err := Parse([]byte("name: "+strings.Repeat("x ", n)+"\n"), "long.yaml")
		if err == nil || !strings.HasPrefix(err.Error(), "long.yaml:1:") || strings.Contains(err.Error(), "^") != shown {
			t.Errorf("%d words: %.200v", n, err)
		}
	}
}
