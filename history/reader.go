package history

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

const (
	// readSize is how many bytes a Reader asks for at once: about a thousand records.
	readSize = 1 << 16
	// maxHeader is the longest header that it accepts.
	maxHeader = 1 << 20
	// maxLocks is how many locks an event can name.
	maxLocks = 1 << 16
	// maxError bounds the error of a clock: an hour is what a measurement begins with.
	maxError = 3600e9
)

// Reader reads one history file from its beginning, and refuses one that is damaged, out of order or truncated. It
// yields an event only when its checksum is right.
type Reader struct {
	Header Header

	name   string
	file   io.ReadCloser
	buf    []byte
	pos    int
	end    int
	offset int64 // of buf[pos] in the file
	first  int64 // offset of the first record
	time   int64 // of the last event, by the process's own clock
	seq    uint32
	n      int64
	err    error // what Next returns from now on
}

// Open opens the history file at path and reads its header.
func Open(path string) (*Reader, error) {
	f, size, err := open(path, noFollow)
	if err != nil {
		return nil, err
	}
	r := newReader(path, f, size)
	if err := r.readHeader(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return r, nil
}

// newReader makes room for a whole file of that size, where it is small.
func newReader(name string, f io.ReadCloser, size int64) *Reader {
	return &Reader{name: name, file: f, buf: make([]byte, min(size+RecordSize, readSize))}
}

func (r *Reader) readHeader() error {
	for {
		if i := bytes.IndexByte(r.buf[:r.end], '\n'); i >= 0 {
			r.pos, r.offset, r.first = i+1, int64(i+1), int64(i+1)
			return r.parseHeader(r.buf[:i])
		}
		if r.end == maxHeader {
			return fmt.Errorf("%w: %s: no header line in its first %d bytes", ErrCorrupt, r.name, r.end)
		}
		if r.end == len(r.buf) {
			r.buf = append(r.buf, make([]byte, min(r.end, maxHeader-r.end))...)
		}
		n, err := r.file.Read(r.buf[r.end:])
		r.end += n
		if n == 0 && err != nil {
			return fmt.Errorf("%w: %s: truncated within its header%s", ErrCorrupt, r.name, because(err))
		}
	}
}

func (r *Reader) parseHeader(line []byte) error {
	if err := json.Unmarshal(line, &r.Header); err != nil {
		return fmt.Errorf("%w: %s: header: %v", ErrCorrupt, r.name, err)
	}
	if r.Header.Version != Version || r.Header.Record != RecordSize {
		return fmt.Errorf("%w: %s: format version %d with records of %d bytes; this program reads version %d with %d",
			ErrCorrupt, r.name, r.Header.Version, r.Header.Record, Version, RecordSize)
	}
	h, why := r.Header, ""
	switch {
	case len(h.Locks) > maxLocks:
		why = fmt.Sprintf("%d locks; an event can name %d", len(h.Locks), maxLocks)
	case h.OffsetNS > maxTime || h.OffsetNS < -maxTime:
		why = fmt.Sprintf("offset_ns is %d", h.OffsetNS)
	case h.ErrorNS < 0 || h.ErrorNS > maxError:
		why = fmt.Sprintf("error_ns is %d: want 0 to %d", h.ErrorNS, int64(maxError))
	}
	if why != "" {
		return fmt.Errorf("%w: %s: header: %s", ErrCorrupt, r.name, why)
	}
	return nil
}

// Next reads the next event into e, in the run's clock, and returns io.EOF after the trailer. Any other error wraps
// ErrCorrupt and names the file and the offset. Once it returned an error, it returns that error again.
func (r *Reader) Next(e *Event) error {
	if r.err != nil {
		return r.err
	}
	if r.end-r.pos < RecordSize {
		if r.err = r.fill(); r.err != nil {
			return r.err
		}
	}
	if err := DecodeRecord(r.buf[r.pos:r.end], e); err != nil {
		r.err = r.at(err)
		return r.err
	}
	if e.Time < r.time && r.n > 0 || e.Seq != r.seq+1 && e.Kind != Clean {
		r.err = r.at(fmt.Errorf("%w: event %d at %d ns comes after event %d at %d ns", ErrCorrupt, e.Seq, e.Time, r.seq,
			r.time))
		return r.err
	}
	if e.Kind == Clean {
		r.err = r.trailer(e)
		return r.err
	}
	if e.Time > maxTime || e.Time < -maxTime {
		r.err = r.at(fmt.Errorf("%w: event %d at %d ns: no time of CLOCK_MONOTONIC", ErrCorrupt, e.Seq, e.Time))
		return r.err
	}
	if int(e.Lock) >= len(r.Header.Locks) && e.Lock > 0 {
		r.err = r.at(fmt.Errorf("%w: lock %d of %d", ErrCorrupt, e.Lock, len(r.Header.Locks)))
		return r.err
	}
	r.pos += RecordSize
	r.offset += RecordSize
	r.n++
	r.time, r.seq = e.Time, e.Seq
	if r.Header.OffsetNS != 0 || r.Header.Clock != nil {
		Shift(e, &r.Header)
	}
	return nil
}

// trailer checks the last record, and that nothing follows it.
func (r *Reader) trailer(e *Event) error {
	if e.Value != r.n {
		return r.at(fmt.Errorf("%w: the trailer counts %d events, the file has %d", ErrCorrupt, e.Value, r.n))
	}
	r.pos += RecordSize
	r.offset += RecordSize
	for r.pos == r.end {
		n, err := r.file.Read(r.buf)
		r.pos, r.end = 0, n
		if n == 0 && err != nil {
			if errors.Is(err, io.EOF) {
				return io.EOF
			}
			return r.at(fmt.Errorf("%w: after the trailer%s", ErrCorrupt, because(err)))
		}
	}
	return r.at(fmt.Errorf("%w: there is data after the trailer", ErrCorrupt))
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
				return r.at(fmt.Errorf("%w: truncated within a record%s", ErrCorrupt, because(err)))
			}
			return r.at(fmt.Errorf("%w: truncated: it has no trailer%s", ErrCorrupt, because(err)))
		}
	}
	return nil
}

// because names a read error that is not just the end of the file.
func because(err error) string {
	if errors.Is(err, io.EOF) {
		return ""
	}
	return ": " + err.Error()
}

// Shift turns every time in e from the process's own clock into the run's, each by its own place on the clock's line.
// By is a header, or a clock.
func Shift(e *Event, by interface{ Run(own int64) int64 }) {
	e.Time = by.Run(e.Time)
	deadline := e.Phase == Invoke && e.Kind.isOperation()
	ends := e.Kind == Acquire || e.Kind == Renew || e.Kind == Renewed || e.Kind == Lost
	if (deadline || ends) && e.Valid != 0 && e.Valid != ValidEndless && e.Valid != ValidUnknown {
		e.Valid = by.Run(e.Valid)
	}
	if learned := e.Kind == Renewed || e.Kind == Lost; (e.Kind == Acquire || learned) && e.Value != 0 {
		e.Value = by.Run(e.Value)
	}
}

func (r *Reader) at(err error) error { return fmt.Errorf("%s: offset %d: %w", r.name, r.offset, err) }

// Close closes the file.
func (r *Reader) Close() error { return r.file.Close() }
