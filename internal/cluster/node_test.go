package cluster

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/lockquake/lockquake/internal/node"
)

// counted is a driver whose processes end at once.
type counted struct{ starts int }

func (c *counted) start(context.Context) (Stdio, *ending, error) {
	c.starts++
	over := newEnding()
	close(over.seen)
	return Stdio{}, over, nil
}

func (c *counted) dial(context.Context, string, string) (net.Conn, error) {
	return nil, errors.New("no port")
}

func (c *counted) signaller(context.Context) (signaller, error) { return nil, errors.New("no process") }

func TestRestartDelayPutsOffEveryStartButTheFirst(t *testing.T) {
	const delay = 50 * time.Millisecond
	d := &counted{}
	n := newNode(node.Spec{Name: "a", Restartable: true, RestartDelay: delay}, node.Place{})
	n.driver = d
	if got := n.StartDelay(); got != 0 {
		t.Errorf("the first start is put off by %s", got)
	}
	if err := n.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if got := n.StartDelay(); got != delay {
			t.Errorf("a later start is put off by %s, want %s", got, delay)
		}
		begin := time.Now()
		if err := n.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begin); took < delay {
			t.Errorf("started again after %s, before its delay of %s", took, delay)
		}
	}
	if d.starts != 3 {
		t.Errorf("%d starts, want 3", d.starts)
	}
}

func TestARestartDelayEndsWithItsContext(t *testing.T) {
	d := &counted{}
	n := newNode(node.Spec{Name: "a", Restartable: true, RestartDelay: time.Hour}, node.Place{})
	n.driver = d
	if err := n.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := n.Start(ctx); !errors.Is(err, context.Canceled) || d.starts != 1 {
		t.Errorf("error %v, %d starts", err, d.starts)
	}
}
