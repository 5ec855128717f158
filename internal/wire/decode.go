package wire

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync/atomic"

	"github.com/lockquake/lockquake/history"
)

const (
	// maxLine bounds one frame in bytes.
	maxLine = 16 << 20
	// batchHeader is the size of the mark and the number of records that begin a batch.
	batchHeader = 5
	// readBuffer holds four thousand records.
	readBuffer = 256 << 10
)

// ErrProtocol says that the input does not follow the protocol; the error that wraps it says what is wrong.
var ErrProtocol = errors.New("control stream breaks the protocol")

// Item is the result of one Receive: either a frame or one or more events.
type Item struct {
	Frame  *Frame
	Events []history.Event // valid until the next call
	Raw    []byte          // the same events as records, valid as long
}

// Decoder reads a stream of frames and batches. It is not safe for concurrent use.
type Decoder struct {
	r     *bufio.Reader
	left  int                      // records of the current batch that have not been read
	locks atomic.Pointer[[]string] // table for events as JSON
	line  []byte
	// events are those of the item under way. err came after them; the next call returns it.
	events []history.Event
	raw    []byte
	err    error
}

// maxEvents bounds the events of one item.
const maxEvents = 4096

// NewDecoder returns a decoder that reads from r.
func NewDecoder(r io.Reader) *Decoder { return &Decoder{r: bufio.NewReaderSize(r, readBuffer)} }

// SetLocks sets the table for the lock names of events in JSON. It may be called at any time.
func (d *Decoder) SetLocks(locks []string) { d.locks.Store(&locks) }

// Next returns the next frame, or as many events as have arrived; it waits for one. Records are returned as they
// come: if the sender of a batch is stopped or killed in the middle, Next yields the records that were sent. At the
// end of the stream it returns io.EOF, or an error that wraps io.ErrUnexpectedEOF if the stream ends within a frame
// or batch.
func (d *Decoder) Next() (Item, error) {
	if d.err != nil {
		return Item{}, d.err
	}
	d.events, d.raw = d.events[:0], d.raw[:0]
	for len(d.events) == 0 || d.more() {
		if d.left == 0 {
			first, err := d.r.Peek(1)
			if err == nil && first[0] == '{' {
				return d.frame()
			}
			if err == nil {
				err = d.openBatch(first[0])
			}
			if err != nil {
				return d.give(err)
			}
		}
		if d.left > 0 {
			if err := d.records(); err != nil {
				return d.give(err)
			}
		}
	}
	return Item{Events: d.events, Raw: d.raw}, nil
}

// give returns the events that came before an error; the next call returns the error.
func (d *Decoder) give(err error) (Item, error) {
	d.err = err
	if len(d.events) == 0 {
		return Item{}, err
	}
	return Item{Events: d.events, Raw: d.raw}, nil
}

// more reports whether at least one more record can be read without waiting: a sender that writes each event
// separately must not cost a call for each.
func (d *Decoder) more() bool {
	if d.left > 0 || len(d.events) >= maxEvents || d.r.Buffered() < batchHeader+history.RecordSize {
		return false
	}
	first, err := d.r.Peek(1)
	return err == nil && first[0] == BatchMark
}

func (d *Decoder) openBatch(first byte) error {
	if first != BatchMark {
		text, _ := d.r.Peek(d.r.Buffered())
		text, _, _ = bytes.Cut(text, []byte("\n"))
		return fmt.Errorf("%w: %s at the start of a frame or batch: standard output is only for these", ErrProtocol,
			clip(text))
	}
	head, err := d.r.Peek(batchHeader)
	if err != nil {
		return fmt.Errorf("within the header of a batch: %w", unexpected(err))
	}
	n := binary.LittleEndian.Uint32(head[1:])
	if n > maxBatch {
		return fmt.Errorf("%w: a batch of %d records; at most %d are allowed", ErrProtocol, n, maxBatch)
	}
	d.left = int(n)
	_, err = d.r.Discard(batchHeader)
	return err
}

// records adds the records of the current batch that have arrived, at least one.
func (d *Decoder) records() error {
	if _, err := d.r.Peek(history.RecordSize); err != nil {
		return fmt.Errorf("within a batch, %d records to come: %w", d.left, unexpected(err))
	}
	n := min(d.left, d.r.Buffered()/history.RecordSize)
	b, err := d.r.Peek(n * history.RecordSize)
	if err != nil { // cannot happen: they are buffered
		return err
	}
	for rest := b; len(rest) > 0; rest = rest[history.RecordSize:] {
		var e history.Event
		if err := history.DecodeRecord(rest, &e); err != nil {
			return fmt.Errorf("%w: %w", ErrProtocol, err)
		}
		d.events = append(d.events, e)
		d.raw = append(d.raw, rest[:history.RecordSize]...)
	}
	d.left -= n
	_, err = d.r.Discard(n * history.RecordSize)
	return err
}

func (d *Decoder) frame() (Item, error) {
	line, err := d.readLine()
	if err != nil {
		return Item{}, err
	}
	f := &Frame{}
	if err := json.Unmarshal(line, f); err != nil {
		return Item{}, fmt.Errorf("%w: frame %s: %w", ErrProtocol, clip(line), err)
	}
	if err := f.check(); err != nil {
		return Item{}, fmt.Errorf("%w: frame %s: %w", ErrProtocol, clip(line), err)
	}
	if f.Type != TypeEvent {
		return Item{Frame: f}, nil
	}
	var locks []string
	if p := d.locks.Load(); p != nil {
		locks = *p
	}
	e, err := f.Event.Event(locks)
	if err != nil {
		return Item{}, fmt.Errorf("%w: frame %s: %w", ErrProtocol, clip(line), err)
	}
	return Item{Events: []history.Event{e}, Raw: history.AppendRecord(nil, &e)}, nil
}

func (d *Decoder) readLine() ([]byte, error) {
	d.line = d.line[:0]
	for {
		part, err := d.r.ReadSlice('\n')
		d.line = append(d.line, part...)
		switch {
		case err == nil:
			return d.line, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, fmt.Errorf("within frame %s: %w", clip(d.line), unexpected(err))
		case len(d.line) > maxLine:
			return nil, fmt.Errorf("%w: a frame of more than %d bytes", ErrProtocol, maxLine)
		}
	}
}

// check rejects a frame of unknown type, one whose part is missing, and one of another version.
func (f *Frame) check() error {
	var has bool
	version := Version
	switch f.Type {
	case TypeGo:
		has = f.Go != nil
	case TypeStop, TypeReady:
		has = true
	case TypeCommand:
		has = f.Command != nil
	case TypeHello:
		if has = f.Hello != nil; has {
			version = f.Hello.Version
		}
	case TypeStart:
		if has = f.Start != nil; has {
			version = f.Start.Version
		}
	case TypePing:
		has = f.Ping != nil
	case TypePong:
		has = f.Pong != nil
	case TypeResult:
		has = f.Result != nil
	case TypePoint:
		has = f.Point != nil
	case TypeEvent:
		has = f.Event != nil
	case TypeLog:
		has = f.Log != nil
	case TypeDone:
		has = f.Done != nil
	case TypeFailed:
		has = f.Failed != nil
	default:
		return fmt.Errorf("unknown type %q", f.Type)
	}
	if !has {
		return fmt.Errorf("it has no key %q", f.Type)
	}
	if version != Version {
		return fmt.Errorf("version %d of the protocol; this program speaks %d", version, Version)
	}
	return nil
}

// unexpected turns an end of stream into io.ErrUnexpectedEOF where more had to come.
func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// clip shortens a line for a message.
func clip(line []byte) string {
	const most = 120
	if len(line) > most {
		return fmt.Sprintf("%q...", line[:most])
	}
	return fmt.Sprintf("%q", line)
}
