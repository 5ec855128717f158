// Package client is the client process: many lock users in one process that faults hit. It is driven over its
// standard streams (docs/protocol.md). In workload mode each user runs a workload by itself. In command mode each
// user carries out the commands that name it. The client records what each user did.
package client

import (
	"cmp"
	"context"
	"io"
	"time"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/internal/wire"
	"github.com/lockquake/lockquake/workloads"
	"github.com/lockquake/lockquake/workloads/resource"
)

// Options configures a client process.
type Options struct {
	Backends  []backends.Backend
	Workloads []workloads.Kind
	Resources []resource.Kind
	In        io.Reader // closed at the end if it is an io.Closer
	Out       io.Writer // the same
	// Process names the program if it is not lockquake; "" means lockquake's own client.
	Process string
	Version string // of this software
	// Libraries lists the modules, with versions, that this software's locks are made of.
	Libraries map[string]string
	// Points and Tells are as in wire.Hello. They are set only by a client that is not lockquake's own, whose locks
	// are described in the list of backends.
	Points []string
	Tells  bool
	// InProcess says that the client shares its process with others. So it cannot be killed alone, and its processor
	// time cannot be measured.
	InProcess bool
}

const (
	// dialTimeout bounds connecting to the service and to the resource, and making all lockers.
	dialTimeout = 30 * time.Second
	// closeTimeout bounds the closing of lockers and connections at the end.
	closeTimeout = 3 * time.Second
)

// Main runs a client until it ends, as described at wire.Serve.
func Main(ctx context.Context, o Options) error {
	hello := wire.NewHello(cmp.Or(o.Process, wire.ProcessClient), o.Version)
	hello.Orders = wire.Optional
	hello.Libraries, hello.Points, hello.Tells = o.Libraries, o.Points, o.Tells
	return wire.Serve(ctx, o.In, o.Out, hello, func(life context.Context, end context.CancelCauseFunc,
		conn *wire.Conn,
	) (wire.Body, error) {
		return newSession(life, end, o, conn), nil
	})
}
