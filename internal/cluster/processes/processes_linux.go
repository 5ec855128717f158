package processes

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/lockquake/lockquake/internal/agent/proc"
	"github.com/lockquake/lockquake/internal/cluster/identity"
	"github.com/lockquake/lockquake/internal/cluster/netspace"
	"github.com/lockquake/lockquake/internal/cluster/owner"
	"github.com/lockquake/lockquake/internal/cluster/state"
)

// Recorded lists the processes of recorded runs.
func Recorded() ([]Marked, error) {
	runs, err := state.Recorded()
	if err != nil || len(runs) == 0 {
		return nil, err
	}
	found, err := markedProcesses(runs)
	lost, unread := inTheirNetworks(runs, found)
	return append(found, lost...), errors.Join(err, unread)
}

// markedProcesses lists the marked processes of these runs. Servers are recognized by their user, which no other
// process has, all others by their environment. The environment of another user's process is not read: that can block
// for as long as that user likes.
func markedProcesses(runs map[string]owner.Mark) ([]Marked, error) {
	servers := map[int]owner.Mark{}
	for run, o := range runs {
		servers[int(identity.OfServers(run))] = o
	}
	delete(servers, 0) // 0 is no user of servers alone
	paths, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var out []Marked
	for _, entry := range paths {
		pid, err := strconv.Atoi(filepath.Base(entry))
		if err != nil || pid == os.Getpid() || pid == os.Getppid() {
			continue
		}
		p, err := proc.Find(pid)
		if err != nil {
			continue // it ended, or its pid is 1
		}
		user, err := userOf(entry)
		if err != nil {
			continue
		}
		if o, ok := servers[user]; ok {
			// Programs that set a process title overwrite their environment. All start in the node's data directory.
			dir, _ := os.Readlink(entry + "/cwd")
			out = append(out, Marked{p, o, filepath.Base(dir)})
		} else if user == os.Geteuid() {
			if o, name, ok := ReadMark(entry + "/environ"); ok && runs[o.Run] == o {
				out = append(out, Marked{p, o, name})
			}
		}
	}
	return slices.DeleteFunc(out, func(m Marked) bool { return !NodeName.MatchString(m.Node) }), nil
}

// inTheirNetworks lists the other processes in the network namespaces of these runs' nodes: a node's child may have its
// own session and environment, but only root can put a process there. A namespace is recognized by the alias that the
// supervisor wrote on its link.
func inTheirNetworks(runs map[string]owner.Mark, found []Marked) ([]Marked, error) {
	if os.Geteuid() != 0 {
		return nil, nil // there are none
	}
	networks, err := proc.ByNetwork()
	var out []Marked
	for _, processes := range networks {
		o, ok := owner.Parse(linkAlias(processes[0]))
		if !ok || runs[o.Run] != o {
			continue
		}
		for _, p := range processes {
			if !slices.ContainsFunc(found, func(m Marked) bool { return m.Process == p }) {
				out = append(out, Marked{p, o, "a child"})
			}
		}
	}
	return out, err
}

// linkAlias returns the alias of the node's link in the network namespace of a process; "" if there is none.
func linkAlias(p proc.Process) (alias string) {
	ns, err := netns.GetFromPid(p.PID)
	if err != nil {
		return "" // it ended
	}
	defer func() { _ = ns.Close() }()
	in, err := netlink.NewHandleAt(ns, unix.NETLINK_ROUTE)
	if err != nil {
		return ""
	}
	defer in.Close()
	if link, err := in.LinkByName(netspace.Link); err == nil {
		alias = link.Attrs().Alias
	}
	return alias
}

// Outlived lists the processes that a node's process left behind: those in the node's own network namespace or, on the
// shared loopback address, those that still carry its marks.
func Outlived(o owner.Mark, name, network string) []proc.Process {
	if network != "" {
		networks, err := proc.ByNetwork()
		if err != nil {
			return nil
		}
		return slices.DeleteFunc(networks[network], func(p proc.Process) bool { return !p.Running() })
	}
	found, err := markedProcesses(map[string]owner.Mark{o.Run: o})
	if err != nil {
		return nil
	}
	var out []proc.Process
	for _, p := range found {
		if p.Node == name && p.Running() {
			out = append(out, p.Process)
		}
	}
	return out
}

// userOf returns the user of a process from its entry in /proc.
func userOf(entry string) (int, error) {
	var st unix.Stat_t
	err := unix.Stat(entry, &st)
	return int(st.Uid), err
}

// ReadMark reads the marks of a run's child. Other users' processes, whose environment cannot be read, have none.
func ReadMark(path string) (o owner.Mark, name string, ok bool) {
	env, err := os.ReadFile(path)
	if err != nil || !bytes.Contains(env, []byte(OwnerVariable)) {
		return owner.Mark{}, "", false
	}
	for setting := range bytes.SplitSeq(env, []byte{0}) {
		if value, found := bytes.CutPrefix(setting, []byte(OwnerVariable)); found {
			o, ok = owner.Parse(string(value))
		}
		if value, found := bytes.CutPrefix(setting, []byte("LOCKQUAKE_NODE=")); found {
			name = string(value)
		}
	}
	return o, name, ok
}

// ProbePtrace attaches to a child, as writing into a target requires.
func ProbePtrace() (string, error) {
	cmd := exec.Command("sleep", "10")
	if err := cmd.Start(); err != nil {
		return "", err
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	runtime.LockOSThread() // ptrace belongs to the thread that attached
	defer runtime.UnlockOSThread()
	if err := unix.PtraceSeize(cmd.Process.Pid); err != nil {
		return "", fmt.Errorf("attach to a child: %w", err)
	}
	return "attached to a child", nil
}
