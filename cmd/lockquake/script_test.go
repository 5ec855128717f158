package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// sideBySide is the number of parallel tests: they wait for clocks more than for a processor.
var sideBySide = "4"

func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", sideBySide) // the command line takes precedence
	testscript.Main(m, map[string]func(){"lockquake": main})
}

// TestScripts runs command lines as a user would, without an engine, servers or root.
func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(e *testscript.Env) error {
			address, err := vacantRedis(e)
			e.Setenv("VACANT_REDIS", address)
			return err
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": exits,
			"json":  jsonHas,
			"flip":  flip,
		},
	})
}

// vacantRedis answers as a Redis without keys until the script ends, as far as --attach asks before anything is
// written.
func vacantRedis(e *testscript.Env) (address string, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	e.Defer(func() { _ = l.Close() })
	answers := []struct{ to, is string }{
		{"HELLO", "-ERR unknown command\r\n"},
		{"CLIENT", "+OK\r\n"},
		{"INFO", "$59\r\n# Server\r\nrun_id:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n\r\n"},
		{"ROLE", "*3\r\n$6\r\nmaster\r\n:0\r\n*0\r\n"},
		{"DBSIZE", ":0\r\n"},
		{"SCAN", "*2\r\n$1\r\n0\r\n*0\r\n"},
		{"GET", "$-1\r\n"},
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = c.Close() }()
				for buf := make([]byte, 4096); ; {
					n, err := c.Read(buf)
					if err != nil {
						return
					}
					asked, reply := strings.ToUpper(string(buf[:n])), "-ERR nothing may be written here\r\n"
					if i := slices.IndexFunc(answers, func(a struct{ to, is string }) bool { return strings.Contains(asked, a.to+"\r\n") }); i >= 0 {
						reply = answers[i].is
					}
					_, _ = io.WriteString(c, reply)
				}
			}()
		}
	}()
	return l.Addr().String(), nil
}

// exits runs a command and checks its exit code: exits CODE COMMAND [ARG...].
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

// jsonHas checks the JSON that was printed last: json KEY.KEY=VALUE..., with <, > or = between key and value.
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

// lookup returns the value of a dotted key as text. Numbers index lists.
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
