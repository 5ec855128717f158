package links

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/lockquake/lockquake/internal/agent/proc"
)

// namespace is the network namespace of a target, held open, so that changes there can be undone after the process is
// gone.
type namespace struct {
	file *os.File
	id   uint64 // inode: equal for equal namespaces
}

// shared returns the inodes of the network namespaces that several processes share: the agent's own and the machine's.
// They are read once, before any thread of the agent enters another namespace.
var shared = sync.OnceValue(func() []uint64 {
	var out []uint64
	for _, path := range []string{"/proc/self/ns/net", "/proc/1/ns/net"} {
		if id, err := inode(path); err == nil {
			out = append(out, id)
		}
	}
	return out
})

// errShared means that a process has no network namespace of its own.
var errShared = errors.New("it has no network namespace of its own: its links are those of the machine")

// openNamespace opens the network namespace of a process. It returns an error for a shared one: rules there would hit
// other processes.
func openNamespace(p proc.Process) (*namespace, error) {
	n, err := namespaceAt("/proc/" + strconv.Itoa(p.PID) + "/ns/net")
	if err != nil {
		return nil, proc.Absent(err)
	}
	if !p.Alive() { // the pid could have been reused before it was opened
		_ = n.close()
		return nil, proc.ErrNoProcess
	}
	if slices.Contains(shared(), n.id) {
		_ = n.close()
		return nil, errShared
	}
	return n, nil
}

func namespaceAt(path string) (*namespace, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	id, err := inode(path)
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return &namespace{file: f, id: id}, nil
}

func inode(path string) (uint64, error) {
	info, err := os.Stat(path)
	if err != nil {
		return 0, err
	}
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, fmt.Errorf("%s has no inode", path)
	}
	return s.Ino, nil
}

func (n *namespace) fd() int { return int(n.file.Fd()) }

func (n *namespace) close() error { return n.file.Close() }

// do runs f on a thread inside the namespace. Sockets that f opens stay there wherever they are used. The thread ends
// with f, so that no other goroutine runs in that namespace.
func (n *namespace) do(f func() error) error {
	var err error
	proc.OnOwnThread(func() {
		if err = unix.Setns(n.fd(), unix.CLONE_NEWNET); err != nil {
			err = fmt.Errorf("enter the network namespace: %w", err)
			return
		}
		err = f()
	})
	return err
}
