package proc

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// Network returns the name of a process's network namespace in /proc; "" if it cannot be read.
func Network(pid int) string {
	name, _ := os.Readlink("/proc/" + strconv.Itoa(pid) + "/ns/net")
	return name
}

// ByNetwork returns the visible processes by network namespace, except this process's own namespace and those that this
// user may not read.
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
		network := Network(pid) // empty for a process that has ended, reaped or not
		if network == "" || network == own {
			continue
		}
		if p, err := Find(pid); err == nil {
			out[network] = append(out[network], p)
		}
	}
	return out, nil
}
