package topology

import (
	"context"
	"errors"
	"fmt"
)

// Attached is set for a topology on external servers. Such a topology creates no servers, changes no settings of
// theirs, and writes only below the prefix.
type Attached struct {
	Run    string // id of the run
	Under  string // the user's prefix; nothing is below it before the run
	Prefix string // the prefix of this run: fresh, and below Under
	// Ports is the number of endpoints by port name.
	Ports map[string]int
	// Master is the primary's name in the Sentinels' configuration.
	Master string
	// Database selects a database on servers that have several.
	Database string
}

// Prefix returns the prefix of everything that the run writes; "": the service's own.
func (c Common) Prefix() string {
	if c.Attached == nil {
		return ""
	}
	return c.Attached.Prefix
}

// Drop removes settings from a description that the run would have made, if the servers are external.
func (c Common) Drop(description map[string]string, names ...string) {
	for _, name := range names {
		if c.Attached != nil {
			delete(description, name)
		}
	}
}

// ErrOccupied means that something is below the prefix already.
var ErrOccupied = errors.New("there are already keys below the prefix")

// Occupied returns an ErrOccupied that says what is there.
func Occupied(what string) error { return fmt.Errorf("%w: %s", ErrOccupied, what) }

// Outside is a Topology whose servers may be external, according to its own parameters.
type Outside interface {
	// Outside returns their host:port in the order of Specs; nil if the servers are the run's own.
	Outside() []string
}

// Guest is a Service that can run on external servers.
type Guest interface {
	// Vacant checks whether anything is below Attached.Under. It writes nothing. An error that wraps ErrOccupied says
	// what is there; after any other error it is unknown. If it did not look at everything, it returns what it looked
	// at, such as "some 100000 of 84000000 keys".
	Vacant(ctx context.Context) (partly string, err error)
	// Remove removes everything below Attached.Prefix and all else that the run made, and returns what that was. It
	// is called when no client lives any more. locks names all locks of the run.
	Remove(ctx context.Context, locks []string) (string, error)
}

// Announcer is a Guest whose servers send clients to addresses that the user did not necessarily give.
type Announcer interface {
	// Announced returns these addresses, as found by Vacant.
	Announced() []string
}
