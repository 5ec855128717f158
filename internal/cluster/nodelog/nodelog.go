// Package nodelog has the log files of a run's nodes.
package nodelog

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
)

// Logs is the log directory of a run. Servers that outlive the run continue in the directory of the next, between two
// lines.
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

// maxLog is how many bytes of one node's output a run keeps: a client is an arbitrary program, and may flood it.
const maxLog = 64 << 20

// Writer is one node's file in the directory.
type Writer struct {
	logs *Logs
	name string

	mu   sync.Mutex
	file *os.File
	left int64 // bytes until the file is full
}

// File opens NAME.log for appending.
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

// Writer opens NAME.log. Each write goes to the directory that is current at that time.
func (b *Logs) Writer(name string) (*Writer, error) {
	f, err := b.File(name)
	if err != nil {
		return nil, err
	}
	s := &Writer{logs: b, name: name, file: f, left: maxLog}
	if info, err := f.Stat(); err == nil { // a restarted node continues its file
		s.left -= info.Size()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.open[s] = true
	return s, nil
}

// SwitchTo continues all open logs in another directory, except those of ended nodes: their last lines may still be on
// the way, and belong to their own run. A new file begins with the path of the one that it continues.
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
		fmt.Fprintf(f, "lockquake: %s continues from an earlier run; its earlier output is in %s\n", s.name,
			s.file.Name())
		_ = s.file.Close()
		s.file, s.left = f, maxLog
		s.mu.Unlock()
	}
	b.dir = dir
	return nil
}

// Write writes to the file of the current run until that is full. The rest is accepted and discarded, so that no writer
// blocks.
func (s *Writer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.left < 0 {
		return len(p), nil
	}
	if s.left -= int64(len(p)); s.left < 0 {
		_, err := fmt.Fprintf(s.file, "\nlockquake: %s wrote more than %d MiB; the rest is omitted\n", s.name,
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

// ForChild returns what a child process writes its log to: the file itself, or a pipe that the supervisor copies to the
// file. A server that outlives its run needs the pipe, and so does a client, whose output is bounded.
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
	go func() { // until the process, and all that inherited its pipe, have ended
		_, _ = io.Copy(s, r)
		_ = r.Close()
		_ = s.Close()
	}()
	return w, nil
}
