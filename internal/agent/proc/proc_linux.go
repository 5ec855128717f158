package proc

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// Supported returns why processes cannot be inspected from outside on this system; nil if they can.
func Supported() error { return nil }

var signals = map[string]unix.Signal{
	"STOP": unix.SIGSTOP, "CONT": unix.SIGCONT, "KILL": unix.SIGKILL, "TERM": unix.SIGTERM, "INT": unix.SIGINT,
}

func send(pid int, name string) error {
	sig, ok := signals[name]
	if !ok {
		return fmt.Errorf("unknown signal %q", name)
	}
	err := unix.Kill(pid, sig)
	if errors.Is(err, unix.ESRCH) {
		return ErrNoProcess
	}
	if err != nil {
		return fmt.Errorf("signal %s to pid %d: %w", name, pid, err)
	}
	return nil
}

// readThreads counts the threads of a process by state. complete is false when the set of threads changed on the way.
func readThreads(pid int) (seen map[string]int, complete bool, err error) {
	dir := "/proc/" + strconv.Itoa(pid) + "/task"
	before, err := TaskNames(dir)
	if err != nil {
		return nil, false, err
	}
	seen = make(map[string]int, 2)
	for _, name := range before {
		fields, err := StatFields(dir + "/" + name + "/stat")
		if errors.Is(err, ErrNoProcess) {
			continue
		}
		if err != nil {
			return nil, false, err
		}
		seen[string(fields[0])]++
	}
	after, err := TaskNames(dir)
	if err != nil {
		return nil, false, err
	}
	if len(seen) == 0 {
		return nil, false, ErrNoProcess
	}
	return seen, slices.Equal(before, after), nil
}

// TaskNames returns the thread ids in a task folder of /proc.
func TaskNames(dir string) ([]string, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, Absent(err)
	}
	defer func() { _ = f.Close() }()
	names, err := f.Readdirnames(-1)
	if err != nil {
		return nil, Absent(err)
	}
	return names, nil
}

// StartTime returns field 22 of /proc/PID/stat.
func StartTime(pid int) (uint64, error) {
	fields, err := StatFields("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, err
	}
	if len(fields) < 20 {
		return 0, fmt.Errorf("/proc/%d/stat has %d fields after the name", pid, len(fields))
	}
	return strconv.ParseUint(string(fields[19]), 10, 64)
}

// StatFields returns the fields behind the program's name, which may itself hold spaces and brackets: the first is the
// state.
func StatFields(path string) ([][]byte, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, Absent(err)
	}
	i := bytes.LastIndexByte(b, ')')
	fields := bytes.Fields(b[i+1:])
	if i < 0 || len(fields) == 0 {
		return nil, fmt.Errorf("%s cannot be read as a process status", path)
	}
	return fields, nil
}

// Absent converts the two errors of a process that ended while it was read into ErrNoProcess.
func Absent(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return ErrNoProcess
	}
	return err
}

// Running reports whether the process exists and has not ended: an unreaped one has.
func (p Process) Running() bool {
	fields, err := StatFields(fmt.Sprintf("/proc/%d/stat", p.PID))
	return err == nil && fields[0][0] != 'Z' && fields[0][0] != 'X' && p.Alive()
}

// Descendants lists a process, its children, their children and so on, parents first.
func Descendants(root int) ([]int, error) {
	names, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list the processes: %w", err)
	}
	children := make(map[int][]int)
	for _, n := range names {
		pid, err := strconv.Atoi(n.Name())
		if err != nil {
			continue
		}
		fields, err := StatFields("/proc/" + n.Name() + "/stat")
		if err != nil || len(fields) < 2 || fields[0][0] == 'Z' {
			continue // it ended
		}
		if parent, err := strconv.Atoi(string(fields[1])); err == nil {
			children[parent] = append(children[parent], pid)
		}
	}
	family := []int{root}
	for i := 0; i < len(family); i++ {
		family = append(family, children[family[i]]...)
	}
	return family, nil
}
