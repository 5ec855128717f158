package wire

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"
)

// stuck is a body with a call that does not end before the test does.
type stuck struct{ over chan struct{} }

func (stuck) Handle(*Frame) (bool, error) { return false, nil }
func (s stuck) Abandon()                  { <-s.over }

// TestANodeEndsWithinItsGrace: a node whose supervisor is gone ends within the 2 s of the protocol, whatever it is
// doing.
func TestANodeEndsWithinItsGrace(t *testing.T) {
	OutliveReader() // called here because it starts a goroutine, which must not be in a bubble
	synctest.Test(t, func(t *testing.T) {
		in, supervisor := io.Pipe()
		b := stuck{make(chan struct{})}
		defer close(b.over)
		time.AfterFunc(time.Second, func() { _ = supervisor.Close() })
		began := time.Now()
		err := Serve(t.Context(), in, io.Discard, &Hello{}, func(context.Context, context.CancelCauseFunc, *Conn) (Body, error) { return b, nil })
		if took := time.Since(began) - time.Second; !errors.Is(err, ErrSupervisorGone) || took != grace || took > 2*time.Second {
			t.Errorf("it ended %v after its supervisor, with %v", took, err)
		}
	})
}
