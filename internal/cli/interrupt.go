package cli

import (
	"context"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"

	"github.com/lockquake/lockquake/internal/wire"
)

// Interrupt turns signals into the end of a context.
type Interrupt struct {
	Ctx  context.Context
	hit  *atomic.Bool
	Done func()
}

// Interruptible returns a context that ends with the first SIGINT, SIGTERM or SIGHUP. Later signals are answered but
// change nothing: what was broken must be healed first. A closed output, as with `| head`, does not end the context.
func Interruptible(parent context.Context, tell *Progress) Interrupt {
	wire.OutliveReader()
	ctx, cancel := context.WithCancel(parent)
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	i := Interrupt{Ctx: ctx, hit: new(atomic.Bool)}
	stop := make(chan struct{})
	go func() {
		for {
			select {
			case s := <-signals:
				if i.hit.Swap(true) {
					tell.Say("still healing the faults, please wait")
					continue
				}
				tell.Say("%v: healing, tearing down, and judging the results so far", s)
				cancel()
			case <-stop:
				return
			}
		}
	}()
	i.Done = func() {
		signal.Stop(signals)
		close(stop)
		cancel()
	}
	return i
}

// Interrupted reports whether a signal came.
func (i Interrupt) Interrupted() bool { return i.hit.Load() }

// Or returns the exit code for an interruption if there was one, and err otherwise.
func (i Interrupt) Or(err error) error {
	if i.Interrupted() {
		return Exit{Code: CodeInterrupted}
	}
	return err
}
