package results

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results/quorum"
)

// Log is the history of a run as the checkers read it: the events of all processes in the order of time. The
// resource's effects replace those of its replicas (see quorum).
type Log struct {
	merge  *history.Merge
	sense  *history.RunSense
	quorum *quorum.Quorum
	whole  history.Header  // of the resource, whose events no single process wrote
	left   []history.Event // what remains after the end of the files
	read   bool            // the files are read
	heard  map[string]int64
}

// OpenLog opens the history of a run directory.
func OpenLog(dir string, env Env) (*Log, error) {
	m, err := history.OpenAll(filepath.Join(dir, DirHistory))
	if err != nil {
		return nil, err
	}
	l := &Log{
		merge: m, sense: history.NewRunSense(m.Processes(), env.lackingEnds()), quorum: quorum.New(env.Replicas),
		whole: history.Header{Process: env.Resource, Locks: m.Locks()}, heard: map[string]int64{},
	}
	for _, h := range m.Processes() {
		if slices.Contains(env.Replicas, h.Process) {
			l.whole.ErrorNS = max(l.whole.ErrorNS, h.ErrorNS)
		}
	}
	return l, nil
}

// Heard returns the number of events read, by process.
func (l *Log) Heard() map[string]int64 { return l.heard }

// Locks returns the names of the run's locks; Event.Lock is an index into it.
func (l *Log) Locks() []string { return l.merge.Locks() }

// Close closes all files.
func (l *Log) Close() error { return l.merge.Close() }

// Next reads the next event into e and returns the header of its process. It returns io.EOF at the end. Damaged or
// invalid data is an error that wraps history.ErrCorrupt and says where.
func (l *Log) Next(e *history.Event) (*history.Header, error) {
	for !l.read {
		process, err := l.merge.Next(e)
		if errors.Is(err, io.EOF) {
			if err := l.refused(l.sense.Finish()); err != nil {
				return nil, err
			}
			l.read, l.left = true, l.quorum.Minority()
			break
		}
		if err == nil {
			err = l.refused(l.sense.Observe(process.Process, e))
		}
		if err != nil {
			return nil, err
		}
		l.heard[process.Process]++
		switch l.quorum.Take(process.Process, e) {
		case quorum.Own:
			return process, nil
		case quorum.Whole:
			return &l.whole, nil
		case quorum.None:
		}
	}
	if len(l.left) == 0 {
		return nil, io.EOF
	}
	*e, l.left = l.left[0], l.left[1:]
	return &l.whole, nil
}

// Each calls observe for all events, with the process that recorded each.
func (l *Log) Each(observe func(process string, e *history.Event)) error {
	var e history.Event
	for {
		from, err := l.Next(&e)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		observe(from.Process, &e)
	}
}

// refused adds the place of an invalid event to its error.
func (l *Log) refused(err error) error {
	var n *history.Nonsense
	if !errors.As(err, &n) {
		return err
	}
	return fmt.Errorf("%s: %w: %w", l.merge.Where(n.Process, n.Seq), history.ErrCorrupt, err)
}
