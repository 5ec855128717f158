package register

import (
	"context"
	"io"
	"testing"

	"github.com/lockquake/lockquake/internal/wire"
	"github.com/lockquake/lockquake/workloads/resource"
	"github.com/lockquake/lockquake/workloads/resource/resourcetest"
)

// running is the register, or a replica, as its supervisor sees it.
type running struct {
	*resourcetest.Process
	t       *testing.T
	address string
	guard   string
}

func launch(t *testing.T, listen string, more ...func(*resource.Options)) *running {
	t.Helper()
	p := resourcetest.Start(t, func(in io.Reader, out io.Writer) error {
		o := resource.Options{Listen: listen, In: in, Out: out, Version: "test"}
		for _, m := range more {
			m(&o)
		}
		return Main(context.Background(), o)
	})
	return &running{Process: p, t: t}
}

func start(t *testing.T, guard string, more ...func(*resource.Options)) *running {
	t.Helper()
	r := launch(t, "127.0.0.1:0", more...)
	r.guard = guard
	r.Frame(wire.TypeHello)
	r.Send(wire.Frame{Type: wire.TypeStart, Start: &wire.Start{
		Name: "register", Index: -1, Format: wire.FormatRecords, Locks: []string{"lock-0", "lock-1"}, Guard: guard, Record: true, Access: []byte(`{"run":"x"}`),
	}})
	r.address = r.Frame(wire.TypeReady).Ready.Address
	return r
}

func (r *running) dial() resource.Connection {
	r.t.Helper()
	c, err := register.Dial(r.t.Context(), resource.Target{Address: r.address, Guard: r.guard})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = c.Close() })
	return c
}
