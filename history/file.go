package history

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
)

// Version is the version of the history file's format.
const Version = 1

// Engine is the name of the process that runs the others; it writes a history too.
const Engine = "engine"

// HostOf and the name of a node, or Engine, is the key of what a run tells of its cluster that names the host of it,
// where there are several; CoresOf and the name of a host the key of its processors.
const (
	HostOf  = "host_"
	CoresOf = "cores_"
)

// Header is the first line of a history file: JSON, padded with spaces so that the records after it are aligned.
type Header struct {
	Version int      `json:"lockquake_history"` // Version
	Process string   `json:"process"`           // node name: "client-1", "register", "engine"
	Record  int      `json:"record_size"`       // RecordSize
	Locks   []string `json:"locks"`             // names of the locks; Event.Lock is an index into it
	// Exclusive says that nothing in the run asks for shared mode, so that an event in it is nonsense.
	Exclusive bool `json:"exclusive,omitempty"`
	// Reentrant says that something in the run asks for a re-entry; else one is nonsense.
	Reentrant bool `json:"reentrant,omitempty"`
	// LeaseNS is how long a grant or a renewal can be valid, at most, after the process had the answer in hand, in ns;
	// 0: it is not known.
	LeaseNS int64 `json:"lease_ns,omitempty"`
	// OffsetNS is what has to be added to the process's own clock, by which its records are stamped, to get the
	// run's, as it was measured before the first of them. ErrorNS is how wrong that may be. Both are 0 where the
	// clock is shared.
	OffsetNS int64 `json:"offset_ns,omitempty"`
	ErrorNS  int64 `json:"error_ns,omitempty"`
	// Clock is what all measurements say, and takes the place of these two; nil where Clocks has none of the process.
	Clock *Clock `json:"-"`
}

// Writer writes one process's history file. It is not safe for concurrent use.
type Writer struct {
	file *os.File
	buf  *bufio.Writer
	rec  []byte
	n    int64
	last Event
}

// Create makes the file at path, which must not exist, and writes its header.
func Create(path string, h Header) (*Writer, error) {
	h.Version, h.Record = Version, RecordSize
	line, err := json.Marshal(h)
	if err != nil {
		return nil, fmt.Errorf("history header: %w", err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	pad := (RecordSize - (len(line)+1)%RecordSize) % RecordSize
	line = append(append(line, bytes.Repeat([]byte{' '}, pad)...), '\n')
	w := &Writer{file: f, buf: bufio.NewWriterSize(f, 256<<10)}
	if _, err := w.buf.Write(line); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return w, nil
}

// Append adds one event. Events must come in the order of their time and sequence number.
func (w *Writer) Append(e *Event) error {
	w.rec = AppendRecord(w.rec[:0], e)
	w.n++
	w.last = *e
	_, err := w.buf.Write(w.rec)
	return err
}

// AppendRecords adds events that are encoded already; last is the last of them.
func (w *Writer) AppendRecords(raw []byte, last *Event) error {
	w.n += int64(len(raw) / RecordSize)
	w.last = *last
	_, err := w.buf.Write(raw)
	return err
}

// Flush hands what is buffered to the operating system.
func (w *Writer) Flush() error { return w.buf.Flush() }

// Close writes the trailer, without which a file counts as truncated, and closes the file.
func (w *Writer) Close() error {
	end := Event{Time: w.last.Time, Seq: w.last.Seq + 1, Kind: Clean, Phase: Info, Value: w.n}
	end.Op = end.Seq
	w.rec = AppendRecord(w.rec[:0], &end)
	_, err := w.buf.Write(w.rec)
	return errors.Join(err, w.buf.Flush(), w.file.Close())
}
