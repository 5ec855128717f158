package main

import (
	"context"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"

	"github.com/lockquake/lockquake/internal/wire"
)

// interrupt turns signals into the end of a context.
type interrupt struct {
	ctx  context.Context
	hit  *atomic.Bool
	done func()
}

// interruptible returns a context that ends with the first SIGINT, SIGTERM or SIGHUP. Later ones are answered and change
// nothing: what was broken must be healed first. That nobody reads what is told, as behind `| head`, ends nothing.
func interruptible(parent context.Context, tell *progress) interrupt {
	wire.OutliveReader()
	ctx, cancel := context.WithCancel(parent)
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	i := interrupt{ctx: ctx, hit: new(atomic.Bool)}
	stop := make(chan struct{})
	go func() {
		for {
			select {
			case s := <-signals:
				if i.hit.Swap(true) {
					tell.say("still healing what was broken; this ends by itself, please wait")
					continue
				}
				tell.say("%v: healing, tearing down, and judging what there is", s)
				cancel()
			case <-stop:
				return
			}
		}
	}()
	i.done = func() {
		signal.Stop(signals)
		close(stop)
		cancel()
	}
	return i
}

func (i interrupt) interrupted() bool { return i.hit.Load() }

// or returns the exit code for an interruption if there was one, and err otherwise.
func (i interrupt) or(err error) error {
	if i.interrupted() {
		return exit{code: codeInterrupted}
	}
	return err
}
