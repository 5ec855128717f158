package report

import (
	"errors"
	"io"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
)

// observer takes events with the name of the process that recorded them.
type observer func(process string, e *history.Event)

// plainly makes an observer that ignores which process recorded an event.
func plainly(observe func(e *history.Event)) observer {
	return func(_ string, e *history.Event) { observe(e) }
}

// scan reads the history of a run directory once and shows each event to all observers.
func scan(dir string, env results.Env, locks func(names []string), observers ...observer) (err error) {
	m, err := results.OpenLog(dir, env)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	locks(m.Locks())
	var e history.Event
	for {
		from, err := m.Next(&e)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		for _, o := range observers {
			o(from.Process, &e)
		}
	}
}
