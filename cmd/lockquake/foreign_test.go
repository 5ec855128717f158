package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/lockquake/lockquake/cmd/lockquake/asnode"
	"github.com/lockquake/lockquake/cmd/lockquake/nodes"
	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/cli"
	"github.com/lockquake/lockquake/internal/cluster"
	"github.com/lockquake/lockquake/internal/engine"
	"github.com/lockquake/lockquake/internal/wire"
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/results/checkers"
	"github.com/lockquake/lockquake/scenarios"
)

// foreignScenario would take a minute. Its lock never excludes.
const foreignScenario = `name: foreign
claim: A client in another language tells what makes no sense.
backend: {use: memory, lock: never-excludes, ttl: 2s}
workload: {use: counter, clients: 2, users: 2, hold: 1ms, resource: {use: register, guard: none}}
run: {for: 1m, seed: 42, settle: 1ms}
expect: {double_grants: "0", token_regressions: ">=0"}
`

// The messages about invalid events: when the run is judged, and when it ends.
var (
	place       = regexp.MustCompile(`/client-[12]\.lqh: offset [0-9]+: history is damaged: event [0-9]+ `)
	refusalLine = regexp.MustCompile(`^client-[12]: event [0-9]+ \(.* of client-[12]/[01]\) is inconsistent: `)
)

// line is an event in the JSON Lines form.
type line = map[string]any

// leaves returns a change that removes a field from some events.
func leaves(field, kind, phase string) func(line) {
	return func(e line) {
		if e["kind"] == kind && (phase == "" || e["phase"] == phase) {
			delete(e, field)
		}
	}
}

// shared returns a change that marks acquires as shared.
func shared(phase string) func(line) {
	return func(e line) {
		if e["kind"] == "acquire" && (phase == "" || e["phase"] == phase) {
			e["mode"] = "shared"
		}
	}
}

// foreign returns a client that sends its events as JSON, each altered by change.
func foreign(change func(line)) func(context.Context, []string, io.Reader, io.Writer) error {
	return func(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
		if args[1] != "client" {
			return asnode.InProcess(ctx, args, in, out)
		}
		r, w := io.Pipe()
		go func() { _ = w.CloseWithError(errors.Join(asnode.InProcess(ctx, args, in, w), io.EOF)) }()
		own := wire.NewDecoder(r)
		for {
			item, err := own.Next()
			if err != nil {
				return nil //nolint:nilerr // the client has ended
			}
			if err := retell(out, item, change); err != nil {
				_ = r.CloseWithError(err)
				return err
			}
		}
	}
}

// retell forwards what a client sent.
func retell(out io.Writer, item wire.Item, change func(line)) error {
	to := json.NewEncoder(out)
	if item.Frame != nil {
		return to.Encode(item.Frame)
	}
	for i := range item.Events {
		e := line{}
		if err := json.Unmarshal(history.AppendJSON(nil, &item.Events[i], "", []string{"lock-0"}), &e); err != nil {
			return err
		}
		change(e)
		if err := to.Encode(line{"type": wire.TypeEvent, "event": e}); err != nil {
			return err
		}
	}
	return nil
}

// TestForeignClientsThatMakeNoSense: the run must end at once, with a line that says what is wrong. Some of these
// clients used to make a lock that never excludes pass, or a correct lock look broken.
func TestForeignClientsThatMakeNoSense(t *testing.T) {
	alike := func(e line) {
		if e["kind"] != "stall" { // on a loaded machine a stall may precede the first acquire, and a run that has not begun has no verdict
			e["user"] = "client-1/0"
		}
	}
	first := func(e line) {
		client, _, _ := strings.Cut(e["user"].(string), "/")
		e["user"] = client + "/0"
	}
	other := func(e line) {
		if e["kind"] == "read" && e["phase"] == "invoke" {
			e["kind"] = "check"
		}
	}
	for name, c := range map[string]struct {
		change func(line)
		want   string
	}{
		"no valid":                   {leaves("valid", "acquire", "ok"), "its valid is 0 or missing"},
		"no issued":                  {leaves("value", "acquire", "ok"), "its value is 0"},
		"no grant":                   {leaves("grant", "acquire", "ok"), "its grant is 0"},
		"no grant in releases":       {leaves("grant", "release", "invoke"), "it has no grant"},
		"no op in outcomes":          {leaves("op", "read", "ok"), "its op is 0, but its user has no open"},
		"no seq":                     {leaves("seq", "read", ""), "its seq is 0"},
		"outcomes of something else": {other, "which is the check of"},
		"shared in outcomes":         {shared("ok"), "its mode is shared, but nothing in the run requests that"},
		"shared from the beginning":  {shared(""), "its mode is shared, but nothing in the run requests that"},
		"all users named alike":      {alike, ""},
		"users of a client alike":    {first, "in hand"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rep, env, err := runForeign(t, c.change)
			if rep.Verdict != results.Unknown || rep.Counts["double_grants"] != nil || cli.ExitCode(err) != cli.CodeInconclusive {
				t.Fatalf("%s, double grants %v: %v", rep.Verdict, rep.Counts["double_grants"], err)
			}
			if !place.MatchString(err.Error()) {
				t.Errorf("it is judged with %q", err)
			}
			if len(env.Unknown) == 0 || !refusalLine.MatchString(env.Unknown[0]) || !strings.Contains(env.Unknown[0], c.want) {
				t.Errorf("the run ended with %q: want %q", env.Unknown, c.want)
			}
			if took := time.Duration(env.End - env.Start); took > 30*time.Second {
				t.Errorf("the run went on for %v", took)
			}
		})
	}
}

// TestForeignClientsThatMakeSense runs a client that sends JSON and alters nothing.
func TestForeignClientsThatMakeSense(t *testing.T) {
	rep, _, err := runForeign(t, func(line) {}, "run.for=300ms")
	if err != nil || rep.Verdict != results.Fail || *rep.Counts["double_grants"] == 0 {
		t.Errorf("%s of %d grants, for %q, %v", rep.Verdict, rep.Judged.Grants, rep.Reasons, err)
	}
}

// runForeign runs the scenario with such clients and judges it.
func runForeign(t *testing.T, change func(line), set ...string) (results.Report, results.Env, error) {
	t.Helper()
	sc, err := scenarios.Parse([]byte(foreignScenario), "foreign.yaml")
	if err == nil {
		sc, err = sc.With(set)
	}
	if err != nil {
		t.Fatal(err)
	}
	dir, err := engine.Run(t.Context(), engine.Options{
		Request: engine.Request{Scenario: sc, Provider: cluster.NewInproc(foreign(change)), Catalog: nodes.Catalog()}, Out: t.TempDir(), Version: "test",
		Started: time.Now(), Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	env, err := results.ReadEnv(dir)
	if err != nil {
		t.Fatal(err)
	}
	rep, err := results.Judge(dir, checkers.All())
	return rep, env, err
}
