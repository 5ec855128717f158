// Package client is the client process: many lock users in one process that faults hit. It is driven over its
// standard streams (docs/protocol.md). In workload mode each user runs a workload by itself, in command mode a named
// user does what it is told. It records what each of them did.
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

// Options is what a client process is given.
type Options struct {
	Backends  []backends.Backend
	Workloads []workloads.Kind
	Resources []resource.Kind
	In        io.Reader // closed at the end where it is an io.Closer
	Out       io.Writer // the same
	// Process says what program this is where that is not lockquake; "": lockquake's own client.
	Process string
	Version string // of this software
	// Libraries are the modules, with their versions, that all locks of this software are made of.
	Libraries map[string]string
	// Points and Tells are what wire.Hello has, where this is not lockquake's own client: of its locks the list of
	// backends tells.
	Points []string
	Tells  bool
	// InProcess says that the client shares its process with others: it cannot be killed alone, and its processor time
	// cannot be told.
	InProcess bool
}

const (
	// dialTimeout bounds the connection to the service and to the resource, and the making of all lockers.
	dialTimeout = 30 * time.Second
	// closeTimeout bounds the closing of lockers and connections at the end.
	closeTimeout = 3 * time.Second
)

// Main is a client's life, as wire.Serve says.
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
