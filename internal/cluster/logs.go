package cluster

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
)

// nodeLogs is the log directory of a run. Servers that outlive the run go on in the
// directory of the next, from one line to the next.
type nodeLogs struct {
	mu   sync.Mutex
	dir  string
	open map[*nodeLog]bool
}

func newNodeLogs(dir string) (*nodeLogs, error) {
	b := &nodeLogs{dir: dir, open: map[*nodeLog]bool{}}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, fmt.Errorf("make the log directory: %w", err)
	}
	return b, nil
}

// maxLog is how many bytes of one node's output a run keeps: a client is anybody's program, and may flood it.
const maxLog = 64 << 20

// nodeLog is one node's file in it.
type nodeLog struct {
	logs *nodeLogs
	name string

	mu   sync.Mutex
	file *os.File
	left int64 // bytes until the file is full
}

// file opens NAME.log, behind what it holds.
func (b *nodeLogs) file(name string) (*os.File, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return openLog(b.dir, name)
}

func openLog(dir, name string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
	if err != nil {
		return nil, fmt.Errorf("open the log of %s: %w", name, err)
	}
	return f, nil
}

// writer opens NAME.log, whichever the directory is at the time of each write.
func (b *nodeLogs) writer(name string) (*nodeLog, error) {
	f, err := b.file(name)
	if err != nil {
		return nil, err
	}
	s := &nodeLog{logs: b, name: name, file: f, left: maxLog}
	if info, err := f.Stat(); err == nil { // a node that was started again goes on in its file
		s.left -= info.Size()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.open[s] = true
	return s, nil
}

// switchTo has everything that is open go on in another directory, but for the logs of nodes that ended: their last lines may still be under
// way, and belong to their own run. A file says at its beginning where it comes from.
func (b *nodeLogs) switchTo(dir string, ended []*Node) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return fmt.Errorf("make the log directory: %w", err)
	}
	for s := range b.open {
		if slices.ContainsFunc(ended, func(n *Node) bool { return n.Name() == s.name }) {
			continue
		}
		f, err := openLog(dir, s.name)
		if err != nil {
			return err
		}
		s.mu.Lock()
		fmt.Fprintf(f, "lockquake: %s runs on from an earlier run; what it said before is in %s\n", s.name, s.file.Name())
		_ = s.file.Close()
		s.file, s.left = f, maxLog
		s.mu.Unlock()
	}
	b.dir = dir
	return nil
}

// Write writes to the file of the run that is under way, until that is full. The rest is read and left out, so that nobody waits for it.
func (s *nodeLog) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.left < 0 {
		return len(p), nil
	}
	if s.left -= int64(len(p)); s.left < 0 {
		_, err := fmt.Fprintf(s.file, "\nlockquake: %s wrote more than %d MiB; the rest is left out\n", s.name, maxLog>>20)
		return len(p), err
	}
	return s.file.Write(p)
}

// Close closes the file.
func (s *nodeLog) Close() error {
	s.logs.mu.Lock()
	delete(s.logs.open, s)
	s.logs.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.file.Close()
}

// forChild is what a child process writes its log to: the file itself, or a pipe, behind which the supervisor finds the file. A server that
// outlives its run needs the pipe, and a client, whose output is bounded.
func (b *nodeLogs) forChild(name string, pipe bool) (*os.File, error) {
	if !pipe {
		return b.file(name)
	}
	s, err := b.writer(name)
	if err != nil {
		return nil, err
	}
	r, w, err := os.Pipe()
	if err != nil {
		_ = s.Close()
		return nil, err
	}
	go func() { // until the process has ended, and all that inherited the pipe from it
		_, _ = io.Copy(s, r)
		_ = r.Close()
		_ = s.Close()
	}()
	return w, nil
}
