package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/lockquake/lockquake/cmd/lockquake/asnode"
	"github.com/lockquake/lockquake/cmd/lockquake/nodes"
	"github.com/lockquake/lockquake/internal/cluster"
	"github.com/lockquake/lockquake/internal/engine"
	"github.com/lockquake/lockquake/internal/wire"
	"github.com/lockquake/lockquake/scenarios"
)

func protocolSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	text, err := os.ReadFile("../../docs/protocol.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("protocol.schema.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("protocol.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// fits returns an error if a line is not a frame of the schema.
func fits(t *testing.T, s *jsonschema.Schema, line string) error {
	t.Helper()
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(line))
	if err != nil {
		t.Fatalf("%v: %s", err, line)
	}
	return s.Validate(v)
}

// overheard collects the frames of both directions.
type overheard struct {
	mu    sync.Mutex
	lines []string
}

func (o *overheard) add(line string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.lines = append(o.lines, line)
}

// node runs a node and records its frames, each event as a frame of its own.
func (o *overheard) node(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	if len(args) < 2 || args[1] == "etcd" {
		return asnode.InProcess(ctx, args, in, out)
	}
	heard, toNode := io.Pipe()
	go func() {
		lines := bufio.NewReader(in)
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				_ = toNode.CloseWithError(err)
				return
			}
			o.add(line)
			if _, err := io.WriteString(toNode, line); err != nil {
				return
			}
		}
	}()
	r, w := io.Pipe()
	go func() { _ = w.CloseWithError(errors.Join(asnode.InProcess(ctx, args, heard, w), io.EOF)) }()
	own := wire.NewDecoder(r)
	for {
		item, err := own.Next()
		if err != nil {
			return nil //nolint:nilerr // the node has ended
		}
		var text bytes.Buffer
		if err := retell(&text, item, func(line) {}); err != nil {
			return err
		}
		for line := range strings.Lines(text.String()) {
			o.add(line)
		}
		if _, err := out.Write(text.Bytes()); err != nil {
			_ = r.CloseWithError(err)
			return err
		}
	}
}

// TestFramesOfRunsFitTheSchema: the frames of real runs, with a workload and with steps, fit the schema.
func TestFramesOfRunsFitTheSchema(t *testing.T) {
	t.Parallel()
	s := protocolSchema(t)
	seen := map[string]int{}
	for name, text := range map[string]string{"workload": foreignScenario, "steps": `name: steps
claim: Commands and points.
backend: {use: memory, ttl: 2s}
workload: {resource: {use: register, guard: none}}
run: {seed: 1}
steps:
  - {do: arm, user: A, point: acquired, action: wait}
  - {do: acquire, user: A, async: true}
  - {await: point, user: A, point: acquired}
  - {do: continue, user: A, point: acquired}
  - {do: write, user: A, value: 3}
  - {do: release, user: A}
expect: {judged: ">=0"}
`} {
		sc, err := scenarios.Parse([]byte(text), name+".yaml")
		if err == nil && name == "workload" {
			sc, err = sc.With([]string{"run.for=200ms"})
		}
		if err != nil {
			t.Fatal(err)
		}
		var heard overheard
		_, err = engine.Run(t.Context(), engine.Options{
			Request: engine.Request{Scenario: sc, Provider: cluster.NewInproc(heard.node), Catalog: nodes.Catalog()}, Out: t.TempDir(), Version: "test",
			Started: time.Now(), Log: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range heard.lines {
			var f wire.Frame
			if err := json.Unmarshal([]byte(line), &f); err != nil {
				t.Fatal(err)
			}
			if seen[f.Type]++; seen[f.Type] > 500 {
				continue // there are thousands of events
			}
			if err := fits(t, s, line); err != nil {
				t.Errorf("%s: %v\n%s", name, err, line)
			}
		}
	}
	for _, kind := range []string{"hello", "start", "ready", "go", "command", "result", "point", "event", "stop", "done"} {
		if seen[kind] == 0 {
			t.Errorf("no frame %s was seen: %v", kind, seen)
		}
	}
}

// TestTheSchemaOfFrames: the schema has every key that a frame can have, and rejects what breaks the protocol.
func TestTheSchemaOfFrames(t *testing.T) {
	t.Parallel()
	s := protocolSchema(t)
	frames := reflect.TypeFor[wire.Frame]()
	for i := range frames.NumField() {
		f := frames.Field(i)
		if f.Type.Kind() != reflect.Pointer || f.Name == "Event" { // jsonl_test covers events
			continue
		}
		known := definition(t, strings.ToLower(f.Name))
		for j := range f.Type.Elem().NumField() {
			key, _, _ := strings.Cut(f.Type.Elem().Field(j).Tag.Get("json"), ",")
			if known[key] == nil {
				t.Errorf("the schema does not know the key %s of %s", key, f.Name)
			}
		}
	}
	for _, line := range []string{
		`{"type":"stop"}`, `{"type":"ready"}`, `{"type":"log","log":{"level":"info","text":"x"}}`, `{"type":"failed","failed":{"error":"x"}}`,
		`{"type":"ping","ping":{"id":1}}`, `{"type":"pong","pong":{"id":1,"now":5,"wall":6,"mono":7},"more":1}`,
	} {
		if err := fits(t, s, line); err != nil {
			t.Errorf("%s: %v", line, err)
		}
	}
	for _, line := range []string{
		`{}`, `{"type":"song"}`, `{"type":"hello"}`, `{"type":"pong","pong":{"id":1}}`, `{"type":"result","result":{"id":1,"outcome":"perhaps"}}`,
		`{"type":"command","command":{"id":1,"do":"dance","user":0,"lock":0,"timeout_ns":0}}`, `{"type":"ping","ping":{"id":"1"}}`,
		`{"type":"event","event":{"time":1,"seq":1,"op":1,"user":"client-1/0","kind":"acquire","phase":"maybe"}}`,
		`{"type":"event","event":{"time":1,"seq":1,"op":1,"user":"client-1/0","kind":"acquire","phase":"ok","valid":"soon"}}`,
	} {
		if fits(t, s, line) == nil {
			t.Errorf("%s fits", line)
		}
	}
}

// definition returns the properties of a part of a frame.
func definition(t *testing.T, name string) map[string]any {
	t.Helper()
	text, err := os.ReadFile("../../docs/protocol.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Defs map[string]struct {
			Properties map[string]any `json:"properties"`
		} `json:"$defs"`
	}
	if err := json.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	return doc.Defs[name].Properties
}
