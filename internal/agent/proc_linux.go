package agent

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Supported tells why processes cannot be seen from outside on this system; nil where they can.
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
	before, err := taskNames(dir)
	if err != nil {
		return nil, false, err
	}
	seen = make(map[string]int, 2)
	for _, name := range before {
		fields, err := statFields(dir + "/" + name + "/stat")
		if errors.Is(err, ErrNoProcess) {
			continue
		}
		if err != nil {
			return nil, false, err
		}
		seen[string(fields[0])]++
	}
	after, err := taskNames(dir)
	if err != nil {
		return nil, false, err
	}
	if len(seen) == 0 {
		return nil, false, ErrNoProcess
	}
	return seen, equal(before, after), nil
}

func equal(a, b []string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

func taskNames(dir string) ([]string, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, absent(err)
	}
	defer func() { _ = f.Close() }()
	names, err := f.Readdirnames(-1)
	if err != nil {
		return nil, absent(err)
	}
	return names, nil
}

// startTime returns field 22 of /proc/PID/stat.
func startTime(pid int) (uint64, error) {
	fields, err := statFields("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, err
	}
	if len(fields) < 20 {
		return 0, fmt.Errorf("/proc/%d/stat has %d fields after the name", pid, len(fields))
	}
	return strconv.ParseUint(string(fields[19]), 10, 64)
}

// statFields returns the fields behind the program's name, which may itself hold spaces and brackets: the first is the
// state.
func statFields(path string) ([][]byte, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, absent(err)
	}
	i := bytes.LastIndexByte(b, ')')
	fields := bytes.Fields(b[i+1:])
	if i < 0 || len(fields) == 0 {
		return nil, fmt.Errorf("%s cannot be read as a process status", path)
	}
	return fields, nil
}

// absent turns the two errors of a process that ended while it was read into ErrNoProcess.
func absent(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return ErrNoProcess
	}
	return err
}
