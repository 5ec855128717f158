package cgroup

import (
	"reflect"
	"testing"
)

func TestControlMountsAreFound(t *testing.T) {
	got := Mounts(`22 1 0:20 / /proc rw - proc proc rw
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory
41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
`)
	want := []Mount{
		{Version: 1, Root: "/", Point: "/sys/fs/cgroup/cpu,cpuacct", Controllers: []string{"rw", "cpu", "cpuacct"}},
		{Version: 1, Root: "/docker/abc", Point: "/sys/fs/cgroup/memory", Controllers: []string{"rw", "memory"}},
		{Version: 2, Root: "/", Point: "/sys/fs/cgroup/unified", Controllers: []string{"rw"}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("found %+v, want %+v", got, want)
	}
}
