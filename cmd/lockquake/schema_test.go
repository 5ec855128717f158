package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/lockquake/lockquake/cmd/lockquake/nodes"
	"github.com/lockquake/lockquake/scenarios"
)

// scenarioSchema returns the schema for editors, and checks that this program generates the same.
func scenarioSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	const file = "../../docs/scenario.schema.json"
	made, err := scenarios.Schema(vocabulary(nodes.Catalog()))
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(file, made, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(text, made) {
		t.Errorf("%s is old; write it anew: make generate", file)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(made))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource(scenarios.SchemaAddress, doc); err != nil {
		t.Fatal(err)
	}
	return c.MustCompile(scenarios.SchemaAddress)
}

// validate returns an error if a YAML text does not fit the scenario schema.
func validate(t *testing.T, s *jsonschema.Schema, text []byte) error {
	t.Helper()
	var v any
	if err := yaml.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	js, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	v, err = jsonschema.UnmarshalJSON(bytes.NewReader(js))
	if err != nil {
		t.Fatal(err)
	}
	return s.Validate(v)
}

// TestSchemaOfScenariosHoldsWhatShips validates every scenario that ships, its twins, and those of the documentation.
func TestSchemaOfScenariosHoldsWhatShips(t *testing.T) {
	t.Parallel()
	s := scenarioSchema(t)
	files, err := filepath.Glob("../../scenarios/*/*.yaml")
	if err != nil || len(files) < 100 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		if strings.Contains(file, "/suite/") { // stories become scenarios only with a lock
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := validate(t, s, text); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
	all, err := scenarios.Load("*")
	if err != nil {
		t.Fatal(err)
	}
	for _, sc := range all {
		if err := validate(t, s, sc.Text); err != nil {
			t.Errorf("%s: %v", sc.Name, err)
		}
	}
	for _, b := range nodes.OwnBackends(nodes.Catalog()) {
		text, err := newScenario("new", b, b.Locks[0])
		if err != nil {
			t.Fatal(err)
		}
		if err := validate(t, s, text); err != nil {
			t.Errorf("new --backend %s: %v", b.Name, err)
		}
	}
}

// TestSchemaOfScenariosRefusesMistakes validates scenarios with exactly one mistake.
func TestSchemaOfScenariosRefusesMistakes(t *testing.T) {
	t.Parallel()
	s := scenarioSchema(t)
	const loaded = `name: a
claim: It is right.
backend: {use: redis, lock: set-px-lua, ttl: 2s, persistence: always}
workload: {use: counter, clients: 2, hold: 20ms, resource: {use: register, guard: fence}}
chaos:
  - {use: pause, on: [leader, client-1], at: 2s, for: 1s}
run: {for: 12s, seed: 1}
expect: {lost_updates: "0", acquire_p99_ms: <1s, judged: 100, bit: all}
`
	const staged = `name: a
claim: It is right.
backend: {use: etcd}
steps:
  - {do: acquire, user: A, outcome: fail}
  - {inject: pause, on: A, as: cut}
  - {await: event, user: A, event: lost, within: 3s}
  - {heal: cut}
expect: {double_grants: ">0"}
`
	for _, text := range []string{loaded, staged} {
		if err := validate(t, s, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	for _, change := range []struct{ from, to string }{
		{"claim:", "clam:"},
		{"claim: It is right.\n", ""},
		{"name: a", "name: A"},
		{"use: redis", "use: sheep"},
		{"lock: set-px-lua", "lock: mutex"},
		{"persistence: always", "heartbeat: 1s"},
		{"ttl: 2s", "ttl: 2"},
		{"clients: 2", "clients: two"},
		{"hold: 20ms", "stock: 5"},
		{"guard: fence", "guard: if-match"},
		{"use: pause", "use: paws"},
		{"use: pause, ", ""},
		{"on: [leader, client-1], ", ""},
		{"for: 1s", "by: 1s"},
		{"seed: 1", "seed: -1"},
		{"lost_updates", "lost_update"},
		{`"0"`, `"none"`},
		{"do: acquire", "do: steal"},
		{"user: A, outcome", "outcome"},
		{"outcome: fail", "outcome: no"},
		{"outcome: fail", "value: 3"},
		{"as: cut", "at: 2s"},
		{"event: lost", "event: found"},
		{"heal: cut", "heal: cut, on: A"},
		{"await: event", "await: godot"},
		{"  - {heal: cut}", "  - {within: 3s}"},
	} {
		text := loaded
		if !strings.Contains(text, change.from) {
			text = staged
		}
		wrong := strings.Replace(text, change.from, change.to, 1)
		if wrong == text {
			t.Fatalf("%q is in neither", change.from)
		}
		if validate(t, s, []byte(wrong)) == nil {
			t.Errorf("%q in place of %q is right by the schema", change.to, change.from)
		}
	}
}

// TestNewScenariosNameTheirSchema: new scenarios have the line that tells editors the schema.
func TestNewScenariosNameTheirSchema(t *testing.T) {
	t.Parallel()
	b := nodes.OwnBackends(nodes.Catalog())[0]
	text, err := newScenario("new", b, b.Locks[0])
	if err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`^# yaml-language-server: \$schema=` + regexp.QuoteMeta(scenarios.SchemaAddress) + "\n").Match(text) {
		t.Errorf("it begins with %q", strings.SplitN(string(text), "\n", 2)[0])
	}
}
