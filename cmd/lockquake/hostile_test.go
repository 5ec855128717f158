package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/lockquake/lockquake/internal/cli"
	"github.com/lockquake/lockquake/results"
)

// hostile is a name that retitles the terminal, clears it, moves the cursor and reverses the text after it. It also
// has a C1 control character and an invalid byte.
const hostile = "\x1b]0;owned\a\x1b[2J\x1b[1A\r\u202e\u2066\u009b31m\x9b\x7f"

// printedBy runs a command line and returns its output.
func printedBy(t *testing.T, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	execute(args, cli.Streams{In: strings.NewReader(""), Out: &out, Err: &out})
	return out.String()
}

// hostileRun makes a run, and puts the hostile name into every text of its directory.
func hostileRun(t *testing.T) string {
	t.Helper()
	runs := t.TempDir()
	printedBy(t, "run", "memory-healthy", "--set", "run.for=1s", "--out", runs)
	dir, err := filepath.EvalSymlinks(filepath.Join(runs, "memory-healthy", "latest"))
	if err != nil {
		t.Fatal(err)
	}
	rewrite(t, filepath.Join(dir, results.FileEnv), func(b []byte) []byte {
		var env map[string]any
		if err := json.Unmarshal(b, &env); err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{"run", "scenario", "version", "replay", "provider", "provider_reason", "lock", "error"} {
			env[key] = key + hostile
		}
		env["warnings"], env["libraries"] = []string{hostile}, map[string]string{hostile: hostile}
		env["service"], env["cluster"] = map[string]string{hostile: hostile}, map[string]string{"provider": hostile}
		return raw(t, env)
	})
	rewrite(t, filepath.Join(dir, results.FileScenario), func(b []byte) []byte {
		return regexp.MustCompile(`(?m)^claim: .*$`).ReplaceAllLiteral(b, append([]byte("claim: "), raw(t, "claim"+hostile)...))
	})
	histories, err := filepath.Glob(filepath.Join(dir, results.DirHistory, "*.lqh"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range histories {
		rewrite(t, path, func(b []byte) []byte {
			length := bytes.IndexByte(b, '\n')
			var head map[string]any
			if err := json.Unmarshal(b[:length], &head); err != nil {
				t.Fatal(err)
			}
			head["locks"] = []string{"l\x1b[2J\u202e"}
			made := raw(t, head)
			if len(made) > length {
				t.Fatalf("the head of a history has %d bytes, and %d are wanted", length, len(made))
			}
			return append(append(made, bytes.Repeat([]byte(" "), length-len(made))...), b[length:]...)
		})
	}
	return dir
}

func rewrite(t *testing.T, path string, change func([]byte) []byte) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, change(b), 0o600); err != nil {
		t.Fatal(err)
	}
}

// raw returns JSON with the least possible escaping.
func raw(t *testing.T, v any) []byte {
	t.Helper()
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		t.Fatal(err)
	}
	return bytes.TrimSpace(b.Bytes())
}

// tame reports text that a terminal would interpret.
func tame(t *testing.T, what, text string) {
	t.Helper()
	for i, r := range text {
		_, size := utf8.DecodeRuneInString(text[i:])
		if r != '\n' && r != '\t' && unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == utf8.RuneError && size == 1 {
			t.Errorf("%s prints %U at %d: %q", what, r, i, text[max(0, i-40):min(len(text), i+40)])
			return
		}
	}
}

// TestNothingPrintedObeysARunDirectory opens a foreign run directory with every verb: its texts reach the terminal as
// plain text only.
func TestNothingPrintedObeysARunDirectory(t *testing.T) {
	dir := hostileRun(t)
	named := filepath.Join(t.TempDir(), "run"+hostile)
	if err := os.Rename(dir, named); err != nil {
		t.Fatal(err)
	}
	out := t.TempDir()
	broken := filepath.Join(t.TempDir(), "x\x1b[2J\u202e.yaml")
	if err := os.WriteFile(broken, append(raw(t, "key"+hostile), ": 1\n"...), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"check", named},
		{"check", named, "--explain"},
		{"check", named, "--format", "json"},
		{"report", named, "--explain"},
		{"compare", named, "--out", out},
		{"compare", named, "--out", out, "--format", "bench"},
		{"history", named},
		{"history", named, "--format", "text"},
		{"history", named + "/nothing"},
		{"run", broken, "--dry-run"},
		{"run", "memory" + hostile},
		{"check" + hostile},
		{"run", "--" + hostile},
	} {
		text := printedBy(t, args...)
		tame(t, strings.Join(args[:1], " "), text)
		if !strings.Contains(text, `\u202e`) || strings.Contains(text, "damaged") {
			t.Errorf("%q did not print the texts of the run: %s", args, text)
		}
	}
}

// TestPrinted: JSON stays the same JSON however it is split into writes, and colours stay.
func TestPrinted(t *testing.T) {
	var b bytes.Buffer
	p := cli.NewPrinted(&b)
	text := raw(t, "é\u202e\x7f\U000e0001😀"+"\x1b")
	for i := range text {
		if n, err := p.Write(text[i : i+1]); n != 1 || err != nil {
			t.Fatal(n, err)
		}
	}
	var back string
	if err := json.Unmarshal(b.Bytes(), &back); err != nil || back != "é\u202e\x7f\U000e0001😀\x1b" {
		t.Errorf("%s: %q, %v", b.String(), back, err)
	}
	tame(t, "printed", b.String())
	b.Reset()
	if _, err := p.Write([]byte(p.Escape + "[1;32mPASS" + p.Escape + "[0m \x1b[1;32mPASS")); err != nil || b.String() != "\x1b[1;32mPASS\x1b[0m \\u001b[1;32mPASS" {
		t.Errorf("%q, %v", b.String(), err)
	}
}
