package topology

import (
	"context"
	"errors"
	"fmt"
)

// Attached is what a topology on somebody else's servers is told. It makes none of them and changes no setting of
// theirs; it writes below the prefix alone.
type Attached struct {
	Run    string // id of the run
	Under  string // what the user gave as prefix; nothing is there before the run
	Prefix string // of what this run writes: fresh, and below Under
	// Ports is how many endpoints there are by the name of their port.
	Ports map[string]int
	// Master is the name under which Sentinels know the primary.
	Master string
	// Database is the one of several that a server may have.
	Database string
}

// Prefix begins all that the run writes; "": the service's own way.
func (c Common) Prefix() string {
	if c.Attached == nil {
		return ""
	}
	return c.Attached.Prefix
}

// Drop removes what a description says of settings that the run would have made, where the servers are somebody else's.
func (c Common) Drop(description map[string]string, names ...string) {
	for _, name := range names {
		if c.Attached != nil {
			delete(description, name)
		}
	}
}

// ErrOccupied says that something is below the prefix already.
var ErrOccupied = errors.New("something is below the prefix already")

// Occupied says what is there.
func Occupied(what string) error { return fmt.Errorf("%w: %s", ErrOccupied, what) }

// Outside is a Topology whose servers somebody else may run, as its own parameters say.
type Outside interface {
	// Outside lists host:port of these, in the order of Specs; nil: they are the run's own.
	Outside() []string
}

// Guest is a Service that knows how to be on somebody else's servers.
type Guest interface {
	// Vacant looks whether anything is below Attached.Under. It writes nothing. An error that wraps ErrOccupied says
	// what is there; any other, that nobody knows. It returns what was looked at where that is not all, such as "some
	// 100000 of 84000000 keys", else "".
	Vacant(ctx context.Context) (partly string, err error)
	// Remove removes what is below Attached.Prefix, and whatever else the run made, and tells what that was. No client
	// lives any more. locks names all locks of the run.
	Remove(ctx context.Context, locks []string) (string, error)
}

// Announcer is a Guest whose servers send clients to addresses that the user need not have given.
type Announcer interface {
	// Announced returns them, as Vacant has found them.
	Announced() []string
}
