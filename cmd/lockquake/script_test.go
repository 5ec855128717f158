package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "4") // unless told otherwise: runs wait for their clocks more than for a processor
	testscript.Main(m, map[string]func(){"lockquake": main})
}

// TestScripts drives the command line as a user would, without an engine, servers or root.
func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": exits,
			"json":  jsonHas,
			"flip":  flip,
		},
	})
}

// exits runs a command and demands its exit code: exits CODE COMMAND [ARG...].
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND [ARG...]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			ts.Fatalf("%v", err)
		}
		got = exit.ExitCode()
	}
	if got != want {
		ts.Fatalf("exit code is %d, should be %d", got, want)
	}
}

// flip inverts one byte of a file: flip FILE OFFSET.
func flip(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: flip FILE OFFSET")
	}
	at, err := strconv.Atoi(args[1])
	ts.Check(err)
	path := ts.MkAbs(args[0])
	b, err := os.ReadFile(path)
	ts.Check(err)
	if at >= len(b) {
		ts.Fatalf("%s has %d bytes", args[0], len(b))
	}
	b[at] = ^b[at]
	ts.Check(os.WriteFile(path, b, 0o644))
}

// jsonHas looks into the JSON that was printed last: json KEY.KEY=VALUE..., with <, > or = between key and value.
func jsonHas(ts *testscript.TestScript, neg bool, args []string) {
	if neg {
		ts.Fatalf("unsupported: ! json")
	}
	var doc any
	if err := json.Unmarshal([]byte(ts.ReadFile("stdout")), &doc); err != nil {
		ts.Fatalf("what was printed is not one JSON value: %v", err)
	}
	for _, a := range args {
		i := strings.IndexAny(a, "=<>")
		if i < 0 {
			ts.Fatalf("%s has neither =, < nor >", a)
		}
		got := lookup(doc, a[:i])
		if !holds(got, a[i], a[i+1:]) {
			ts.Fatalf("%s: it is %s", a, got)
		}
	}
}

// lookup returns the value under a dotted key as text; numbers index lists.
func lookup(v any, key string) string {
	for part := range strings.SplitSeq(key, ".") {
		switch x := v.(type) {
		case map[string]any:
			v = x[part]
		case []any:
			i, err := strconv.Atoi(part)
			if err != nil || i >= len(x) {
				return "not there"
			}
			v = x[i]
		default:
			return "not there"
		}
	}
	if v == nil {
		return "null"
	}
	return fmt.Sprint(v)
}

func holds(got string, op byte, want string) bool {
	if op == '=' {
		return got == want
	}
	g, err1 := strconv.ParseFloat(got, 64)
	w, err2 := strconv.ParseFloat(want, 64)
	return err1 == nil && err2 == nil && (op == '<' && g < w || op == '>' && g > w)
}
