//go:build soak && linux

package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// machine holds what faults could leave behind on this machine: lines of text, by kind.
type machine map[string][]string

// clocksApart is how far the wall clock may drift against the monotonic one by itself.
const clocksApart = 200 * time.Millisecond

// volatile matches what changes in the listings by itself: packet counters, and the times of iptables-save.
var volatile = regexp.MustCompile(`\[\d+:\d+\]|counter packets \d+ bytes \d+|(?m)^#.*$`)

// lookAround records everything that is compared. A missing tool is an error, because what was not examined cannot be
// compared.
func lookAround(t *testing.T) machine {
	t.Helper()
	m := machine{
		"queueing disciplines": said(t, "tc", "qdisc", "show"), "nftables": said(t, "nft", "list", "ruleset"),
		"iptables": said(t, "iptables-save"), "legacy iptables": said(t, "iptables-legacy-save"),
		"links": names(t, "/sys/class/net/*"), "namespaces with a name": names(t, "/run/netns/*"), "network namespaces": nil, "time namespaces": nil,
		"loop devices": nil, "mounts": nil, "stopped processes": nil, "processes of lockquake": nil, "state directories": names(t, filepath.Join(os.TempDir(), "lockquake-*", "*")),
		"control groups": nil, "kernel queues": nil,
	}
	for _, kind := range [][]string{{"ps", "-a"}, {"network", "ls"}, {"volume", "ls"}} {
		m["docker "+kind[0]] = said(t, "docker", append(kind, "-q", "--filter", "label=org.lockquake.run")...)
	}
	for _, file := range names(t, "/sys/block/loop*/loop/backing_file") {
		b, _ := os.ReadFile(file) // a file that vanishes meanwhile counts as empty
		m["loop devices"] = append(m["loop devices"], file+" "+string(b))
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); len(f) > 4 && f[4] != "/" {
			m["mounts"] = append(m["mounts"], f[4])
		}
	}
	if b, err := os.ReadFile("/proc/net/netfilter/nfnetlink_queue"); err == nil { // without the file, the kernel has no such queues
		m["kernel queues"] = lines(string(b))
	}
	_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() && strings.Contains(d.Name(), "lockquake") {
			m["control groups"] = append(m["control groups"], path)
		}
		return nil // a group may vanish meanwhile
	})
	m.processes(t)
	for what := range m {
		slices.Sort(m[what])
		m[what] = slices.Compact(m[what])
	}
	return m
}

// processes records stopped processes, those of lockquake, and the namespaces.
func (m machine) processes(t *testing.T) {
	t.Helper()
	for _, dir := range names(t, "/proc/[0-9]*") {
		command, _ := os.ReadFile(dir + "/cmdline") // any of these files may vanish meanwhile
		name := dir + " " + strings.TrimSpace(strings.ReplaceAll(string(command), "\x00", " "))
		if stat, err := os.ReadFile(dir + "/stat"); err == nil && bytes.Contains(stat, []byte(") T ")) {
			m["stopped processes"] = append(m["stopped processes"], name)
		}
		if env, err := os.ReadFile(dir + "/environ"); err == nil && bytes.Contains(env, []byte("LOCKQUAKE_NODE=")) {
			m["processes of lockquake"] = append(m["processes of lockquake"], name)
		}
		for kind, key := range map[string]string{"net": "network namespaces", "time": "time namespaces"} {
			if ns, err := os.Readlink(dir + "/ns/" + kind); err == nil {
				m[key] = append(m[key], ns)
			}
		}
	}
}

func said(t *testing.T, tool string, args ...string) []string {
	t.Helper()
	b, err := exec.Command(tool, args...).Output()
	if err != nil {
		t.Fatalf("%s %s: %v; without it what was left cannot be seen", tool, strings.Join(args, " "), err)
	}
	return lines(volatile.ReplaceAllString(string(b), ""))
}

func lines(text string) []string {
	var out []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			out = append(out, line)
		}
	}
	return out
}

func names(t *testing.T, pattern string) []string {
	t.Helper()
	list, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// differences returns what has appeared and what has vanished.
func (m machine) differences(now machine) []string {
	var out []string
	for what := range now {
		for _, x := range now[what] {
			if !slices.Contains(m[what], x) {
				out = append(out, "+ "+what+": "+x)
			}
		}
		for _, x := range m[what] {
			// What existed before belongs to others and may end, including another run of lockquake.
			others := strings.Contains(what, "process") || strings.Contains(what, "namespaces") || strings.HasPrefix(what, "docker") ||
				strings.Contains(x, "lockquake") || strings.Contains(x, "lqh")
			if !others && !slices.Contains(now[what], x) {
				out = append(out, "- "+what+": "+x)
			}
		}
	}
	slices.Sort(out)
	return out
}

// clocks returns how far the wall clock is ahead of the monotonic one.
func clocks(t *testing.T) time.Duration {
	t.Helper()
	var wall, mono unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_REALTIME, &wall); err != nil {
		t.Fatal(err)
	}
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &mono); err != nil {
		t.Fatal(err)
	}
	return time.Duration(wall.Nano() - mono.Nano())
}

// asBefore demands that the machine is as it was, within a time. Only differences that every look sees count: what
// comes and goes is not ours.
func asBefore(t *testing.T, before machine, ahead, within time.Duration) {
	t.Helper()
	var left []string
	for end, first := time.Now().Add(within), true; ; first = false {
		now := before.differences(lookAround(t))
		if first {
			left = now
		}
		left = slices.DeleteFunc(left, func(x string) bool { return !slices.Contains(now, x) })
		if len(left) == 0 || time.Now().After(end) {
			break
		}
		time.Sleep(500 * time.Millisecond)
	}
	for _, x := range left {
		t.Errorf("left behind: %s", x)
	}
	moved := clocks(t) - ahead
	if moved.Abs() > clocksApart {
		t.Errorf("the wall clock of the machine moved by %s", moved)
	}
	var looked []string
	for what, list := range before {
		looked = append(looked, fmt.Sprintf("%s %d", what, len(list)))
	}
	slices.Sort(looked)
	fmt.Printf("the machine before and after: %d differences; wall clock against monotonic %s; looked at: %s\n", len(left), moved.Round(time.Microsecond), strings.Join(looked, ", "))
}
