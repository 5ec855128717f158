package engine

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Host describes this machine for env.json.
func Host() map[string]string {
	h := map[string]string{
		"os": runtime.GOOS, "arch": runtime.GOARCH, "cores": fmt.Sprint(runtime.NumCPU()),
		"go": runtime.Version(),
	}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		h["kernel"] = unix.ByteSliceToString(u.Release[:])
	}
	if b, err := os.ReadFile("/proc/meminfo"); err == nil {
		first, _, _ := strings.Cut(string(b), "\n")
		h["memory"] = strings.Join(strings.Fields(strings.TrimPrefix(first, "MemTotal:")), " ")
	}
	return h
}

// machineCPU returns the processor time in ns that all programs of this machine have used, from /proc/stat; 0 if
// there is none. It includes time stolen by the hypervisor: that is as unavailable as what others use.
func machineCPU() int64 {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	return usedTicks(string(b)) * (1e9 / 100) // the kernel counts in hundredths of a second
}

// usedTicks adds up the first line of /proc/stat, which is over all cores: user, nice, system, irq, softirq and
// steal, without idle and iowait. The guests' time is in user already.
func usedTicks(stat string) (sum int64) {
	line, _, _ := strings.Cut(stat, "\n")
	fields := strings.Fields(line)
	for i, f := range fields[:min(9, len(fields))] {
		if n, err := strconv.ParseInt(f, 10, 64); err == nil && i != 4 && i != 5 {
			sum += n
		}
	}
	return sum
}

// LoadAverage returns the three load averages of the machine, or "" if they are unknown.
func LoadAverage() string {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return ""
	}
	f := strings.Fields(string(b))
	return strings.Join(f[:min(3, len(f))], " ")
}
