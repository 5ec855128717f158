package proc

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// FootprintOf returns the resource usage of a process and its descendants.
func FootprintOf(pid int) (Footprint, error) {
	var out Footprint
	if _, err := StartTime(pid); err != nil {
		return out, err
	}
	family, err := Descendants(pid)
	if err != nil {
		return out, err
	}
	for _, id := range family {
		one, err := footprint(id)
		if err != nil && id != pid {
			continue // it ended meanwhile
		}
		if err != nil {
			return out, err
		}
		out.Memory += one.Memory
		out.Descriptors += one.Descriptors
		out.Threads += one.Threads
	}
	return out, nil
}

func footprint(pid int) (out Footprint, err error) {
	dir := fmt.Sprintf("/proc/%d/", pid)
	open, err := os.ReadDir(dir + "fd")
	if err != nil {
		return out, Absent(err)
	}
	out.Descriptors = len(open)
	status, err := os.ReadFile(dir + "status")
	if err != nil {
		return out, Absent(err)
	}
	for line := range strings.Lines(string(status)) {
		key, value, _ := strings.Cut(line, ":")
		number, _, _ := strings.Cut(strings.TrimSpace(value), " ")
		n, _ := strconv.ParseInt(number, 10, 64)
		switch key {
		case "RssAnon":
			out.Memory = n << 10 // the unit is kB
		case "Threads":
			out.Threads = int(n)
		}
	}
	return out, nil
}
