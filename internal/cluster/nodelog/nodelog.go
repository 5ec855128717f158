// Package nodelog is the log files of the nodes of a run.
package nodelog

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
)

// Logs is the log directory of a run. Servers that outlive the run go on in the
// directory of the next, from one line to the next.
type Logs struct {
	mu   sync.Mutex
	dir  string
	open map[*Writer]bool
}

// Open makes the directory.
func Open(dir string) (*Logs, error) {
	b := &Logs{dir: dir, open: map[*Writer]bool{}}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, fmt.Errorf("make the log directory: %w", err)
	}
	return b, nil
}

// maxLog is how many bytes of one node's output a run keeps: a client is anybody's program, and may flood it.
const maxLog = 64 << 20

// Writer is one node's file in it.
type Writer struct {
	logs *Logs
	name string

	mu   sync.Mutex
	file *os.File
	left int64 // bytes until the file is full
}

// File opens NAME.log, behind what it holds.
func (b *Logs) File(name string) (*os.File, error) {
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

// Writer opens NAME.log, whichever the directory is at the time of each write.
func (b *Logs) Writer(name string) (*Writer, error) {
	f, err := b.File(name)
	if err != nil {
		return nil, err
	}
	s := &Writer{logs: b, name: name, file: f, left: maxLog}
	if info, err := f.Stat(); err == nil { // a node that was started again goes on in its file
		s.left -= info.Size()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.open[s] = true
	return s, nil
}

// SwitchTo has everything that is open go on in another directory, but for the logs of nodes that ended: their last
// lines may still be under way, and belong to their own run. A file says at its beginning where it comes from.
func (b *Logs) SwitchTo(dir string, ended []string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return fmt.Errorf("make the log directory: %w", err)
	}
	for s := range b.open {
		if slices.Contains(ended, s.name) {
			continue
		}
		f, err := openLog(dir, s.name)
		if err != nil {
			return err
		}
		s.mu.Lock()
		fmt.Fprintf(f, "lockquake: %s runs on from an earlier run; what it said before is in %s\n", s.name,
			s.file.Name())
		_ = s.file.Close()
		s.file, s.left = f, maxLog
		s.mu.Unlock()
	}
	b.dir = dir
	return nil
}

// Write writes to the file of the run that is under way, until that is full. The rest is read and left out, so that
// nobody waits for it.
func (s *Writer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.left < 0 {
		return len(p), nil
	}
	if s.left -= int64(len(p)); s.left < 0 {
		_, err := fmt.Fprintf(s.file, "\nlockquake: %s wrote more than %d MiB; the rest is left out\n", s.name,
			maxLog>>20)
		return len(p), err
	}
	return s.file.Write(p)
}

// Close closes the file.
func (s *Writer) Close() error {
	s.logs.mu.Lock()
	delete(s.logs.open, s)
	s.logs.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.file.Close()
}

// ForChild is what a child process writes its log to: the file itself, or a pipe, behind which the supervisor finds the
// file. A server that outlives its run needs the pipe, and a client, whose output is bounded.
func (b *Logs) ForChild(name string, pipe bool) (*os.File, error) {
	if !pipe {
		return b.File(name)
	}
	s, err := b.Writer(name)
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
