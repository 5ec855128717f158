package history

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
)

// Pattern matches the history files within the history folder of a run directory.
const Pattern = "*.lqh"

// batchSize is how many events are read at once, and batches how many such batches there are: while the events of one
// are judged, the others are read and decoded.
const (
	batchSize = 1 << 12
	batches   = 3
)

// Merge reads several history files as one, in the order of time. Events of equal time come in the order of the
// files' names, those of one file in their own order.
type Merge struct {
	locks   []string
	readers []*Reader
	events  []Event // events[i] is the next one of readers[i]
	heap    []head  // of the files that have one, the earliest first

	batch       batch // what Next is about to yield
	full, empty chan batch
}

// batch is some events in their order. err is what comes after them, where that is no other batch.
type batch struct {
	events []Event
	files  []int // of each event: index into the readers
	at     int   // how many of them were yielded
	err    error
}

// head is the key by which the next file is chosen.
type head struct {
	time int64
	file int // index into readers, which are in the order of their names
}

func (h head) before(o head) bool { return h.time < o.time || h.time == o.time && h.file < o.file }

// OpenAll opens every history file in dir. A file bears the name of its process, and all files must name the same
// locks.
func OpenAll(dir string) (*Merge, error) {
	names, err := fs.Glob(os.DirFS(dir), Pattern) // whatever is in the name of dir
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("%w: %s: no history files (%s)", ErrCorrupt, dir, Pattern)
	}
	sort.Strings(names)
	clocks, err := readClocks(dir)
	if err != nil {
		return nil, err
	}
	m := &Merge{}
	for i, name := range names {
		p := filepath.Join(dir, name)
		r, err := Open(p)
		if err != nil {
			return nil, errors.Join(err, m.Close())
		}
		m.readers = append(m.readers, r)
		if i == 0 {
			m.locks = r.Header.Locks
		}
		switch {
		case r.Header.Process != strings.TrimSuffix(name, filepath.Ext(Pattern)):
			return nil, errors.Join(fmt.Errorf("%w: %s: its header names the history of %q", ErrCorrupt, p,
				r.Header.Process), m.Close())
		case !slices.Equal(m.locks, r.Header.Locks):
			return nil, errors.Join(fmt.Errorf("%w: %s has other locks than the previous files", ErrCorrupt, p),
				m.Close())
		}
		r.Header.Locks = m.locks // one copy will do
		r.Header.Clock = clocks[r.Header.Process]
	}
	if err := m.start(); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

// start reads the first event of each file.
func (m *Merge) start() error {
	m.events = make([]Event, len(m.readers))
	for i, r := range m.readers {
		switch err := r.Next(&m.events[i]); {
		case err == nil:
			m.heap = append(m.heap, head{m.events[i].Time, i})
		case !errors.Is(err, io.EOF):
			return err
		}
	}
	for i := len(m.heap)/2 - 1; i >= 0; i-- {
		m.sink(i)
	}
	return nil
}

// Locks returns the names of the run's locks; Event.Lock is an index into it.
func (m *Merge) Locks() []string { return m.locks }

// Processes returns the header of each file.
func (m *Merge) Processes() []Header {
	hs := make([]Header, 0, len(m.readers))
	for _, r := range m.readers {
		hs = append(hs, r.Header)
	}
	return hs
}

// Where returns the file and offset of an event of a process, in the form that errors have. Events are numbered
// without gaps.
func (m *Merge) Where(process string, seq uint32) string {
	for _, r := range m.readers {
		if r.Header.Process == process {
			return fmt.Sprintf("%s: offset %d", r.name, r.first+(int64(seq)-1)*RecordSize)
		}
	}
	return process
}

// Next reads the earliest event not yet read into e, and says whose file it came from. It returns io.EOF at the end.
func (m *Merge) Next(e *Event) (process *Header, err error) {
	b := &m.batch
	if b.at == len(b.events) && b.err == nil {
		m.turn()
	}
	if b.at == len(b.events) {
		return nil, b.err
	}
	*e = b.events[b.at]
	process = &m.readers[b.files[b.at]].Header
	b.at++
	return process, nil
}

// turn gives the batch that is used up back, and takes the next one.
func (m *Merge) turn() {
	if m.full == nil {
		m.full, m.empty = make(chan batch, batches), make(chan batch, batches)
		for range batches - 1 {
			m.empty <- batch{}
		}
		go m.readAhead()
	}
	m.empty <- m.batch
	m.batch = <-m.full
}

// readAhead fills batches until there is nothing more to read, or no batch comes back.
func (m *Merge) readAhead() {
	defer close(m.full)
	for b := range m.empty {
		if b.events == nil {
			b.events, b.files = make([]Event, 0, batchSize), make([]int, 0, batchSize)
		}
		b.events, b.files, b.at = b.events[:0], b.files[:0], 0
		for len(b.events) < batchSize && b.err == nil {
			b.err = m.read(&b)
		}
		m.full <- b
		if b.err != nil {
			return
		}
	}
}

// read adds the earliest event not yet read to a batch.
func (m *Merge) read(b *batch) error {
	if len(m.heap) == 0 {
		return io.EOF
	}
	i := m.heap[0].file
	next := &m.events[i]
	b.events, b.files = append(b.events, *next), append(b.files, i)
	switch err := m.readers[i].Next(next); err {
	case nil:
		m.heap[0].time = next.Time
	case io.EOF: // exactly this value: a reader never wraps it
		last := len(m.heap) - 1
		m.heap[0] = m.heap[last]
		m.heap = m.heap[:last]
	default:
		return err
	}
	m.sink(0)
	return nil
}

// sink moves the head at position i down the heap until both children come later. A head that stays in front, as
// most do when a file brings several events in a row, costs two comparisons.
func (m *Merge) sink(i int) {
	h := m.heap
	for {
		first := 2*i + 1
		if first >= len(h) {
			return
		}
		if other := first + 1; other < len(h) && h[other].before(h[first]) {
			first = other
		}
		if !h[first].before(h[i]) {
			return
		}
		h[i], h[first] = h[first], h[i]
		i = first
	}
}

// Close closes all files. Nothing can be read any more.
func (m *Merge) Close() error {
	if m.full != nil {
		close(m.empty)
		for range m.full { // until nobody reads ahead
		}
		m.full, m.batch = nil, batch{err: os.ErrClosed}
	}
	var errs []error
	for _, r := range m.readers {
		errs = append(errs, r.Close())
	}
	return errors.Join(errs...)
}
