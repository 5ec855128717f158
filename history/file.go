package history

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
)

// Version is the version of the history file's format.
const Version = 1

// Header is the first line of a history file: JSON, padded with spaces so that the records after it are aligned.
type Header struct {
	Version int      `json:"lockquake_history"` // Version
	Process string   `json:"process"`           // node name: "client-1", "register", "engine"
	Record  int      `json:"record_size"`       // RecordSize
	Locks   []string `json:"locks"`             // names of the locks; Event.Lock is an index into it
	// OffsetNS is added to the process's own clock to get the run's; ErrorNS is how wrong that may be. Both are 0 where
	// the clock is shared. Every certain interval of this process is narrowed by ErrorNS at both ends.
	OffsetNS int64 `json:"offset_ns,omitempty"`
	ErrorNS  int64 `json:"error_ns,omitempty"`
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

// Reader reads one history file from its beginning, and refuses one that is damaged, out of order or truncated.
type Reader struct {
	Header Header
	name   string
	file   io.ReadCloser
	buf    []byte
	pos    int
	end    int
	offset int64 // of buf[pos] in the file
	last   Event
	n      int64
	done   bool
}

// Open opens the history file at path and reads its header.
func Open(path string) (*Reader, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	r := &Reader{name: path, file: f, buf: make([]byte, 1<<20)}
	if err := r.readHeader(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return r, nil
}

func (r *Reader) readHeader() error {
	for {
		if i := bytes.IndexByte(r.buf[:r.end], '\n'); i >= 0 {
			if err := json.Unmarshal(r.buf[:i], &r.Header); err != nil {
				return fmt.Errorf("%w: %s: header: %v", ErrCorrupt, r.name, err)
			}
			if r.Header.Version != Version || r.Header.Record != RecordSize {
				return fmt.Errorf("%w: %s: format version %d with records of %d bytes; this program reads version %d with %d",
					ErrCorrupt, r.name, r.Header.Version, r.Header.Record, Version, RecordSize)
			}
			r.pos, r.offset = i+1, int64(i+1)
			return nil
		}
		if r.end == len(r.buf) {
			return fmt.Errorf("%w: %s: no header line in its first %d bytes", ErrCorrupt, r.name, r.end)
		}
		n, err := r.file.Read(r.buf[r.end:])
		r.end += n
		if n == 0 && err != nil {
			return fmt.Errorf("%w: %s: truncated within its header", ErrCorrupt, r.name)
		}
	}
}

// Next reads the next event into e and returns io.EOF after the trailer. Any other error wraps ErrCorrupt and names
// the file and the offset.
func (r *Reader) Next(e *Event) error {
	if r.done {
		return io.EOF
	}
	if r.end-r.pos < RecordSize {
		if err := r.fill(); err != nil {
			return err
		}
	}
	if err := DecodeRecord(r.buf[r.pos:r.end], e); err != nil {
		return r.at(err)
	}
	if e.Time < r.last.Time || e.Seq != r.last.Seq+1 && e.Kind != Clean {
		return r.at(fmt.Errorf("%w: event %d at %d ns comes after event %d at %d ns", ErrCorrupt, e.Seq, e.Time, r.last.Seq, r.last.Time))
	}
	r.pos += RecordSize
	r.offset += RecordSize
	if e.Kind == Clean {
		r.done = true
		if e.Value != r.n {
			return r.at(fmt.Errorf("%w: the trailer counts %d events, the file has %d", ErrCorrupt, e.Value, r.n))
		}
		return io.EOF
	}
	r.n++
	r.last = *e
	return nil
}

// fill moves the rest to the front of the buffer and reads on until a whole record is there.
func (r *Reader) fill() error {
	copy(r.buf, r.buf[r.pos:r.end])
	r.end -= r.pos
	r.pos = 0
	for r.end < RecordSize {
		n, err := r.file.Read(r.buf[r.end:])
		r.end += n
		if n == 0 && err != nil {
			if r.end > 0 {
				return r.at(fmt.Errorf("%w: truncated within a record", ErrCorrupt))
			}
			return r.at(fmt.Errorf("%w: truncated: it has no trailer", ErrCorrupt))
		}
	}
	return nil
}

func (r *Reader) at(err error) error { return fmt.Errorf("%s: offset %d: %w", r.name, r.offset, err) }

// Close closes the file.
func (r *Reader) Close() error { return r.file.Close() }
