package scenarios

import (
	"strings"
	"testing"
)

func TestClient(t *testing.T) {
	t.Parallel()
	for client, want := range map[string]string{
		"{run: [python3, x.py]}":                             "python3 x.py",
		"{go: clients/go/redsync}":                           "redsync",
		"{go: ., dir: /src/mine}":                            "mine",
		"{go: a/redsync, with: [x.org/redsync/v4@v4.0.3]}":   "redsync (redsync@v4.0.3)",
		"{go: a, with: [x.org/b@v1.0.0, x.org/c=../c]}":      "a (b@v1.0.0, c@../c)",
		"{go: a, with: [x.org/b=y.org/z@v1.0.0], tags: [t]}": "a (b@v1.0.0)",
		"{go: a, run: [b]}":                                  `workload.client.run: conflicts with workload.client.go`,
		"{with: [x.org/b@v1.0.0]}":                           "workload.client.go: is missing",
		"{run: [a], tags: [b]}":                              "workload.client.go: is missing",
		"{dir: a}":                                           "workload.client.run: is missing",
		"{go: a, with: [x.org/b]}":                           `workload.client.with: "x.org/b" has no version: want MODULE@VERSION`,
		"{go: a, with: [x.org/b@]}":                          "has no version",
		"{go: a, with: [x.org/b=c]}":                         "has no version",
		"{go: a, with: [x.org/b@v1.0.0=../c]}":               "has no version",
		"{go: a, version: v1}":                               `unknown key "version"`,
	} {
		s, err := Parse([]byte("name: x\nclaim: y\nbackend: {use: redis}\nworkload: {use: counter, client: "+client+"}\nexpect: {judged: \">=0\"}\n"), "x.yaml")
		if err != nil {
			if !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "^") {
				t.Errorf("%s: %v, want %q", client, err, want)
			}
			continue
		}
		if got := s.Workload.Client.String(); got != want {
			t.Errorf("%s: %q, want %q", client, got, want)
		}
		set, err := s.Workload.Client.Set()
		if err != nil {
			t.Fatal(err)
		}
		if again, err := s.With([]string{"workload.client={run: [other]}", set}); err != nil || again.Workload.Client.String() != want || again.Workload.Client.Dir != s.Workload.Client.Dir {
			t.Errorf("%s: %s makes it %v, %v", client, set, again.Workload.Client, err)
		}
	}
}
