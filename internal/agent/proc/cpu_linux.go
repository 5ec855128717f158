package proc

import (
	"path/filepath"
	"strconv"
	"time"
)

// ticksPerSecond is the kernel's USER_HZ, the unit of times in /proc. It is the same on all machines that Go runs on.
const ticksPerSecond = 100

// CPU returns the user and system time of a process and its descendants, in steps of 10 ms. Children that were waited
// for count with their parent.
func CPU(pid int) (time.Duration, error) {
	if _, err := StartTime(pid); err != nil {
		return 0, err
	}
	paths, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return 0, err
	}
	parent, used := map[int]int{}, map[int]int64{}
	for _, path := range paths {
		fields, err := StatFields(path)
		if err != nil || len(fields) < 15 {
			continue // it ended meanwhile
		}
		id, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		parent[id], _ = strconv.Atoi(string(fields[1]))
		for _, f := range fields[11:15] { // utime, stime, and those of children that were waited for
			n, _ := strconv.ParseInt(string(f), 10, 64)
			used[id] += n
		}
	}
	var ticks int64
	for id := range used {
		for up := id; up > 1; up = parent[up] {
			if up == pid {
				ticks += used[id]
				break
			}
		}
	}
	return time.Duration(ticks) * (time.Second / ticksPerSecond), nil
}
