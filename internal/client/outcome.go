package client

import (
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"os"
	"regexp"
	"sync"
	"syscall"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/wire"
	"github.com/lockquake/lockquake/lock"
	"github.com/lockquake/lockquake/workloads"
	"github.com/lockquake/lockquake/workloads/resource"
)

// certain lists the errors after which certainly nothing was done, and their classes.
var certain = []struct {
	err  error
	code uint8
}{
	{lock.ErrContended, history.CodeContended},
	{lock.ErrLost, history.CodeLost},
	{lock.ErrNotHeld, history.CodeNotHeld},
	{resource.ErrFenced, history.CodeFenced},
	{resource.ErrRefused, history.CodeOther},
	{lock.ErrNotSent, history.CodeConnection},
	{lock.ErrRefused, history.CodeUnavailable},
}

// refusal is the error of an order that the client does not carry out.
type refusal string

func (r refusal) Error() string { return string(r) }

// outcome returns what an error means, certainly not done or unknown, and the class of the error.
func outcome(err error) (history.Phase, uint8) {
	for _, c := range certain {
		if errors.Is(err, c.err) {
			return history.Fail, c.code
		}
	}
	var r refusal
	if lock.Certain(err) || errors.As(err, &r) || errors.Is(err, workloads.ErrStopped) {
		return history.Fail, history.CodeOther
	}
	return history.Info, class(err)
}

// class returns the reason why the outcome is unknown.
func class(err error) uint8 {
	var timeout interface{ Timeout() bool }
	var network *net.OpError
	var number syscall.Errno
	switch {
	case errors.Is(err, context.Canceled):
		return history.CodeCancelled
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded),
		errors.As(err, &timeout) && timeout.Timeout():
		return history.CodeTimeout
	case errors.As(err, &network), errors.As(err, &number), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF),
		errors.Is(err, net.ErrClosed):
		return history.CodeConnection
	}
	return history.CodeOther
}

// failed records the end of an operation that was not done, certainly or perhaps.
func (u *user) failed(e *history.Event, asked wire.Stamp, err error) {
	e.Op = asked.Seq
	if e.Phase, e.Code = outcome(err); !errors.Is(err, context.Canceled) { // a stop is not an error
		u.s.tally.add(err)
	}
	u.finished(e, asked, false)
	if r, ok := lock.ReasonOf(err); ok {
		u.because(e, asked, r)
	}
}

// because records the reason for event e.
func (u *user) because(e *history.Event, asked wire.Stamp, r lock.Reason) {
	if reason, known := wire.Because(e, r); known && asked.Seq != 0 {
		u.s.rec.Append(&reason)
	}
}

// finished records the end of an operation, unless its invoke found no room: an end alone means nothing.
func (u *user) finished(e *history.Event, asked wire.Stamp, flushed bool) {
	switch {
	case asked.Seq == 0:
	case flushed:
		u.s.rec.AppendFlushed(e)
	default:
		u.s.rec.Append(e)
	}
}

// maxTexts is how many different error texts a client counts separately.
const maxTexts = 20

// tally counts errors by their texts.
type tally struct {
	mu    sync.Mutex
	count map[string]int64
}

// changing matches the part of an error's text that differs each time: the local end of a connection.
var changing = regexp.MustCompile(`[0-9a-fA-F.:\[\]]+:\d+->`)

func (t *tally) add(err error) {
	if err == nil {
		return
	}
	text := changing.ReplaceAllString(err.Error(), "")
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.count == nil {
		t.count = map[string]int64{}
	}
	if _, known := t.count[text]; !known && len(t.count) >= maxTexts-1 {
		text = "other errors"
	}
	t.count[text]++
}

// texts returns the counts so far.
func (t *tally) texts() map[string]int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.count)
}
