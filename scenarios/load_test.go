package scenarios

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestLoad(t *testing.T) {
	file := filepath.Join(t.TempDir(), "mine.yaml")
	if err := os.WriteFile(file, []byte(small+"twins:\n  other: {claim: z, expect: {stale_writes: \"0\"}, set: {workload.clients: 7}}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	bad := filepath.Join(t.TempDir(), "bad.yaml")
	if err := os.WriteFile(bad, []byte("name: x\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ arg, want string }{
		{"etcd-holder-pause", "etcd-holder-pause"},
		{"etcd-holder-pause-fenced", "etcd-holder-pause-fenced"},
		{"stories/etcd-holder-pause", "etcd-holder-pause"},
		{"etcd-h*", "etcd-healthy etcd-holder-pause etcd-holder-pause-fenced etcd-holder-pause-delayed etcd-holder-pause-fenced-redis"},
		{"stories/redis-r*", "redis-restart-amnesia redis-restart-amnesia-aof-always redis-restart-amnesia-renewed " +
			"redis-restart-amnesia-aof-everysec redis-restart-amnesia-power-everysec redis-restart-amnesia-power-always redis-restart-amnesia-stop redis-restart-amnesia-save-points"},
		{file, "small"},
		{file + ":other", "small-other"},
		{file + ":another", `error: ` + file + `: has no twin "another"; it has other`},
		{bad, "error: " + bad + ": claim: is missing: one or two sentences that say what the run shows"},
		{"etcd-holder-puase", "error: etcd-holder-puase: unknown scenario: did you mean etcd-holder-pause, etcd-holder-pause-fenced, etcd-holder-pause-delayed, etcd-holder-pause-fenced-redis or redis-holder-pause? `lockquake list scenarios` lists all"},
		{"./nothing.yaml", "error: ./nothing.yaml: unknown scenario: no such file"},
		{"zookeper-*", "error: zookeper-*: unknown scenario: no embedded scenario matches; did you mean zookeeper-healthy, "},
		{"", "error: : unknown scenario: did you mean memory-admits-process, "},
		{".", "error: .: is a directory; name the YAML file of a scenario"},
	} {
		list, err := Load(c.arg)
		var got []string
		for _, s := range list {
			got = append(got, s.Name)
		}
		text := strings.Join(got, " ")
		if err != nil {
			text = "error: " + err.Error()
		}
		if text != c.want && (err == nil || !strings.HasPrefix(text, c.want)) {
			t.Errorf("%s: %s, want %s", c.arg, text, c.want)
		}
	}
	list, err := Load(file + ":other")
	if err != nil {
		t.Fatal(err)
	}
	if s := list[0]; s.Workload.Clients != 7 || s.Claim != "z" {
		t.Errorf("twin %+v", s)
	}
}

func TestNames(t *testing.T) {
	for _, l := range Names() {
		if l.Name == "etcd-holder-pause-fenced" {
			if l.File != "stories/etcd-holder-pause.yaml" || l.Path != "stories/etcd-holder-pause-fenced" || !strings.Contains(l.Claim, "token") {
				t.Errorf("%+v", l)
			}
			return
		}
	}
	t.Error("the fenced twin is not listed")
}
