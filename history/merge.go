package history

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"sort"
)

// Pattern matches the history files within the history folder of a run directory.
const Pattern = "*.lqh"

// Merge reads several history files as one, in the order of time. Events of equal time come in the order of the
// files' names.
type Merge struct {
	locks   []string
	readers []*Reader
	heads   []Event // heads[i] belongs to live[i]
	live    []*Reader
}

// OpenAll opens every history file in dir. All must name the same locks.
func OpenAll(dir string) (*Merge, error) {
	paths, err := filepath.Glob(filepath.Join(dir, Pattern))
	if err != nil {
		return nil, err
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("%w: %s: no history files (%s)", ErrCorrupt, dir, Pattern)
	}
	sort.Strings(paths)
	m := &Merge{}
	for _, p := range paths {
		r, err := Open(p)
		if err != nil {
			return nil, errors.Join(err, m.Close())
		}
		m.readers = append(m.readers, r)
		if m.locks == nil {
			m.locks = r.Header.Locks
		} else if !slices.Equal(m.locks, r.Header.Locks) {
			return nil, errors.Join(fmt.Errorf("%w: %s names other locks than the files before it", ErrCorrupt, p), m.Close())
		}
	}
	for _, r := range m.readers {
		var e Event
		switch err := r.Next(&e); {
		case err == nil:
			m.live = append(m.live, r)
			m.heads = append(m.heads, e)
		case !errors.Is(err, io.EOF):
			return nil, errors.Join(err, m.Close())
		}
	}
	return m, nil
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

// Next reads the earliest event not yet read into e, and says whose file it came from. It returns io.EOF at the end.
func (m *Merge) Next(e *Event) (process *Header, err error) {
	if len(m.live) == 0 {
		return nil, io.EOF
	}
	first := 0
	for i := 1; i < len(m.heads); i++ {
		if m.heads[i].Time < m.heads[first].Time {
			first = i
		}
	}
	*e = m.heads[first]
	r := m.live[first]
	switch err := r.Next(&m.heads[first]); {
	case err == nil:
	case errors.Is(err, io.EOF):
		m.live = slices.Delete(m.live, first, first+1)
		m.heads = slices.Delete(m.heads, first, first+1)
	default:
		return nil, err
	}
	return &r.Header, nil
}

// Close closes all files.
func (m *Merge) Close() error {
	var errs []error
	for _, r := range m.readers {
		errs = append(errs, r.Close())
	}
	return errors.Join(errs...)
}
