package proc

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// Network names the network namespace of a process as /proc does; "" where it cannot be read.
func Network(pid int) string {
	name, _ := os.Readlink("/proc/" + strconv.Itoa(pid) + "/ns/net")
	return name
}

// ByNetwork lists the processes that can be seen from here by their network namespaces, but for this process's own
// namespace and those that this user may not look into.
func ByNetwork() (map[string][]Process, error) {
	entries, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	own, out := Network(os.Getpid()), map[string][]Process{}
	for _, e := range entries {
		pid, err := strconv.Atoi(filepath.Base(e))
		if err != nil || pid == os.Getpid() {
			continue
		}
		network := Network(pid) // of one that has ended, reaped or not, nothing is read
		if network == "" || network == own {
			continue
		}
		if p, err := Find(pid); err == nil {
			out[network] = append(out[network], p)
		}
	}
	return out, nil
}
