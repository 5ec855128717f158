package nodes

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockquake/lockquake/internal/cli"
	"github.com/lockquake/lockquake/scenarios"
)

func TestClientFromWords(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.Mkdir("testdata", 0o755); err != nil {
		t.Fatal(err)
	}
	for words, want := range map[string]string{
		"testdata a.org/b@v1.0.0|python3 x.py": `{"dir":"HERE","go":"testdata","with":["a.org/b@v1.0.0"],"beside":[{"run":["python3","x.py"],"dir":"HERE"}]}`,
		"python3 x.py":                         `{"run":["python3","x.py"],"dir":"HERE"}`,
		"testdata":                             `{"dir":"HERE","go":"testdata"}`,
		"testdata a.org/b@v1.0.0 -tags=x,y":    `{"dir":"HERE","go":"testdata","with":["a.org/b@v1.0.0"],"tags":["x","y"]}`,
		"testdata a.org/b=./c a.org/d=e@v1.0":  `{"dir":"HERE","go":"testdata","with":["a.org/b=./c","a.org/d=e@v1.0"]}`,
		"testdata --verbose":                   `testdata is a folder, so a Go client is built there, but "--verbose" is neither MODULE@VERSION`,
		"testdata a.org/b":                     `"a.org/b" is neither MODULE@VERSION`,
		"  ":                                   "no program is given",
	} {
		f := Flags{Clients: strings.Split(words, "|")}
		key, err := f.clientKey()
		if err != nil {
			if cli.ExitCode(err) != cli.CodeUsage || !strings.Contains(err.Error(), want) {
				t.Errorf("%q: %v, want %q", words, err, want)
			}
			continue
		}
		here, err := os.Getwd()
		if err != nil {
			t.Fatal(err)
		}
		if want = "workload.client=" + strings.ReplaceAll(want, "HERE", here); key != want {
			t.Errorf("%q:\n%s\nwant\n%s", words, key, want)
		}
	}
}

// TestBuildClient: a client that cannot be built counts as missing, with the message of go. Its directory is relative
// to that of the scenario's file.
func TestBuildClient(t *testing.T) {
	t.Setenv("GOPROXY", "off")
	t.Setenv("GOFLAGS", "-modcacherw")
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	dir := t.TempDir()
	for name, text := range map[string]string{
		"mine/go.mod":  "module mine\n\ngo 1.18\n",
		"mine/main.go": "package main\n\nfunc main() {}\n",
		"x.yaml":       "name: x\nclaim: y\nbackend: {use: redis}\nworkload: {use: counter, client: {go: mine}}\nexpect: {judged: \">=0\"}\n",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	list, err := scenarios.Load(filepath.Join(dir, "x.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var n Source
	s, err := list[0].With([]string{"workload.client.beside=[{run: [a]}]"})
	if err != nil {
		t.Fatal(err)
	}
	paths, err := n.buildClients(t.Context(), s)
	if err != nil || len(paths) != 2 || paths[1] != "" {
		t.Fatalf("%q, %v", paths, err)
	}
	if info, err := os.Stat(paths[0]); err != nil || info.Mode()&0o111 == 0 || filepath.Base(paths[0]) != "mine" {
		t.Errorf("%s: %v", paths[0], err)
	}
	s, err = list[0].With([]string{"workload.client.with=[example.org/lib@v1.0.0]"})
	if err != nil {
		t.Fatal(err)
	}
	const want = "mine (lib@v1.0.0): go get: go: example.org/lib@v1.0.0: module lookup disabled by GOPROXY=off"
	if _, err := n.buildClients(t.Context(), s); err == nil || cli.ExitCode(err) != cli.CodeMissing || err.Error() != want {
		t.Errorf("exit code %d, %v; want %q", cli.ExitCode(err), err, want)
	}
	if s, err = list[0].With([]string{"workload.client={run: [a]}"}); err != nil {
		t.Fatal(err)
	}
	if paths, err := n.buildClients(t.Context(), s); len(paths) != 1 || paths[0] != "" || err != nil {
		t.Errorf("of a command: %q, %v", paths, err)
	}
}
