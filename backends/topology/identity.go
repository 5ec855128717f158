package topology

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/lockquake/lockquake/internal/node"
)

// Identified is a Topology whose servers can be told apart. The process at an endpoint need not be the server itself:
// a pooler hands out its own sessions, and a load balancer has several servers behind one address.
type Identified interface {
	// Identify connects Meetings times to each endpoint and returns who answered there. It writes nothing. An error
	// that wraps ErrNotItself means that a connection is not the session that was asked for; any other error leaves
	// open who answered.
	Identify(ctx context.Context, endpoints []node.Handle) ([]Met, error)
}

// Meetings is how often Identify connects to each endpoint. If two servers take turns, every second connection finds
// the other one. If they are drawn at random, one is missed in 1 of 128 looks.
const Meetings = 8

// Met records which servers answered at one endpoint.
type Met struct {
	Address string
	Servers []string // distinct ids of the servers, in order; servers without an id are left out
	// Alone means that the lock's promise rests on the one server at this address. A second one behind it would have
	// its own locks.
	Alone bool
}

// ErrNotItself means that a connection did not reach a session of the server's own.
var ErrNotItself = errors.New("there is a pooler in between")

// NotItself returns an ErrNotItself with the address, and how it was noticed.
func NotItself(address, how string) error {
	return fmt.Errorf("%s: %w: %s", address, ErrNotItself, how)
}

// Meet connects to an endpoint Meetings times and returns the ids of the servers that answered.
func Meet(ctx context.Context, address string, alone bool, ask func(context.Context) (id string, err error)) (Met,
	error,
) {
	m := Met{Address: address, Alone: alone}
	for range Meetings {
		id, err := ask(ctx)
		if err != nil {
			return m, fmt.Errorf("%s does not identify its server: %w", address, err)
		}
		if id != "" && !slices.Contains(m.Servers, id) {
			m.Servers = append(m.Servers, id)
		}
	}
	slices.Sort(m.Servers)
	return m, nil
}

// String lists the servers found there.
func (m Met) String() string {
	return fmt.Sprintf("%d servers behind %s (%s)", len(m.Servers), m.Address, strings.Join(m.Servers, ", "))
}

// Several returns the endpoints with more than one server behind them.
func Several(all []Met) []Met {
	return slices.DeleteFunc(slices.Clone(all), func(m Met) bool { return len(m.Servers) < 2 })
}

// CheckMet rejects endpoints at which the lock's promise does not hold. Those are an endpoint with several servers if
// the lock rests on one, and two endpoints with the same server if clients ask independent servers (apart).
func CheckMet(all []Met, apart bool) error {
	for _, m := range Several(all) {
		if m.Alone {
			return fmt.Errorf("%s, but the lock needs one: give the address of each server itself", m)
		}
	}
	if !apart {
		return nil
	}
	at := map[string]string{}
	for _, m := range all {
		for _, id := range m.Servers {
			if first, known := at[id]; known {
				return fmt.Errorf("%s and %s are the same server (%s): a majority of the endpoints is no majority of the servers",
					first, m.Address, id)
			}
			at[id] = m.Address
		}
	}
	return nil
}
