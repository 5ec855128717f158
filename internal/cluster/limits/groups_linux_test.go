package limits

import (
	"reflect"
	"testing"

	"github.com/lockquake/lockquake/internal/agent/cgroup"
	"github.com/lockquake/lockquake/internal/node"
)

func TestTheOwnGroupIsRead(t *testing.T) {
	const text = "9:name=systemd:/\n4:memory:/outer/inner\n2:cpu,cpuacct:/\n0::/\n"
	for controller, want := range map[string]string{"memory": "/outer/inner", "cpu": "/", "pids": "/"} {
		if got := ownGroup(text, controller); got != want {
			t.Errorf("the own group of %s is %q, want %q", controller, got, want)
		}
	}
}

func TestAGroupOutsideOfTheMountIsItsTop(t *testing.T) {
	dir := t.TempDir()
	m := cgroup.Mount{Root: "/docker/abc", Point: dir}
	for group, want := range map[string]string{"/docker/abc": dir, "/docker/abc/gone": dir, "/elsewhere": dir} {
		if got := below(m, group); got != want {
			t.Errorf("%s is at %s, want %s", group, got, want)
		}
	}
}

func TestSettingsOfAGroup(t *testing.T) {
	l := node.Limits{CPUs: 0.29, Memory: 64<<20 + 1} // 0.29 has no exact binary form
	for version, want := range map[int][]string{
		1: {"cpu.cfs_period_us=100000", "cpu.cfs_quota_us=29000", "memory.limit_in_bytes=67108864", "memory.memsw.limit_in_bytes=67108864"},
		2: {"cpu.max=29000 100000", "memory.max=67108864", "memory.swap.max=0"},
	} {
		var got []string
		for _, s := range (&Group{hierarchy: hierarchy{version: version}}).settings(l) {
			got = append(got, s.file+"="+s.value)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("version %d: %v, want %v", version, got, want)
		}
	}
}
