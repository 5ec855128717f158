package locks

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockquake/lockquake/backends/redis/access"
	"github.com/lockquake/lockquake/internal/node"
	"github.com/lockquake/lockquake/lock"
)

// fleet is one client process's connections to independent servers.
type fleet struct {
	clients  []*redis.Client
	timeout  time.Duration // of one command to one server, including the connect
	oneByOne bool          // otherwise all servers are asked in parallel
}

// newFleet makes a client for each server. They connect with the first command.
func newFleet(addresses []string, login node.Login, p access.QuorumParams) *fleet {
	f := &fleet{timeout: p.NodeTimeout, oneByOne: p.Order == access.OrderSequential}
	for _, a := range addresses {
		o := access.Options(p.NodeTimeout, login).Simple()
		o.Addr, o.Dialer = a, access.Detour(nil, p.NodeTimeout, login.TLS)
		f.clients = append(f.clients, redis.NewClient(o))
	}
	return f
}

// patience returns how long all servers together can take for one command, at most.
func (f *fleet) patience() time.Duration { return time.Duration(len(f.clients)) * f.timeout }

// only returns the part of the fleet whose servers' bits are set, with the same connections.
func (f *fleet) only(servers uint64) *fleet {
	part := &fleet{timeout: f.timeout, oneByOne: f.oneByOne}
	for i, c := range f.clients {
		if i < 64 && servers&(1<<i) != 0 {
			part.clients = append(part.clients, c)
		}
	}
	return part
}

func (f *fleet) close() error {
	var errs []error
	for _, c := range f.clients {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// request sends one server a request on behalf of id's owner. It returns whether the server did it.
type request func(ctx context.Context, c *redis.Client, o *owner) (done bool, err error)

// ask sends a command to every server, each with its own deadline, and returns when all have answered or timed out.
func (f *fleet) ask(ctx context.Context, id string, send request) vote {
	v := vote{answers: make([]answer, len(f.clients)), errs: make([]error, len(f.clients))}
	one := func(i int) {
		ctx, cancel := context.WithTimeout(ctx, f.timeout)
		defer cancel()
		o := &owner{id: id}
		done, err := send(ctx, f.clients[i], o)
		v.answers[i], v.errs[i] = o.answer(done, err), err
	}
	if f.oneByOne {
		for i := range f.clients {
			one(i)
		}
		return v
	}
	var group sync.WaitGroup
	for i := range f.clients {
		group.Go(func() { one(i) })
	}
	group.Wait()
	return v
}

// answer is the meaning of one server's reply to one command.
type answer uint8

const (
	yes     answer = iota // it did it
	no                    // it did not: the key had another value, already existed, or did not exist
	refused               // it answered with an error: it did not
	notSent               // the command was never written to a connection
	unknown               // it was written, and no reply came
)

// answer returns the meaning of a server's reply to a command of this owner.
func (o *owner) answer(done bool, err error) answer {
	var reply redis.Error
	switch {
	case err == nil && done:
		return yes
	case err == nil || errors.Is(err, redis.Nil):
		return no
	case errors.As(err, &reply):
		return refused
	case o.sent.IsZero():
		return notSent
	}
	return unknown
}

// vote is all servers' answers to one command.
type vote struct {
	answers []answer
	errs    []error // of each server; nil if it answered yes or no
}

// quorum is the number of servers that are a majority.
func (v vote) quorum() int { return len(v.answers)/2 + 1 }

func (v vote) count(a answer) int {
	n := 0
	for _, b := range v.answers {
		if a == b {
			n++
		}
	}
	return n
}

// grantedBy returns which servers said yes.
func (v vote) grantedBy() lock.Reason {
	r := lock.Reason{Cause: lock.CauseAnsweredBy, N: int64(len(v.answers))}
	for i, a := range v.answers {
		if a == yes && i < 64 {
			r.Seen |= 1 << i
		}
	}
	return r
}

// String returns the counts.
func (v vote) String() string {
	return fmt.Sprintf("of %d nodes %d yes, %d no, %d refused, %d not reached, %d silent",
		len(v.answers), v.count(yes), v.count(no), v.count(refused), v.count(notSent), v.count(unknown))
}

// because adds the servers' answers to an error if neither those that said yes nor those that said no are a majority.
func (v vote) because(err error) error {
	if v.count(yes) >= v.quorum() || v.count(no) >= v.quorum() {
		return err
	}
	n := func(a answer) uint8 { return uint8(min(v.count(a), math.MaxUint8)) }
	seen := lock.Vote{Yes: n(yes), No: n(no), Refused: n(refused), NotSent: n(notSent), Silent: n(unknown)}.Seen()
	return lock.Because(lock.Reason{Cause: lock.CauseNoMajority, Seen: seen, N: int64(len(v.answers))}, err)
}

// why returns the error of a server with that answer.
func (v vote) why(a answer) error {
	for i, b := range v.answers {
		if a == b && v.errs[i] != nil {
			return v.errs[i]
		}
	}
	return nil
}

// refusal returns the error of an attempt to set a key that did not succeed on the needed number of servers,
// certainly or possibly.
//
// The user has no grant in either case. If the servers that said yes and the silent ones together are enough, the
// service may have granted it: the outcome is unknown. If such keys exist and the release does not reach them, they
// end with the TTL. Otherwise the attempt certainly failed: the key existed (ErrContended), servers answered with
// errors (ErrRefused), or too few were reached (ErrNotSent). Keys on a minority of servers are no grant. Until they
// are deleted or expire they can only obstruct other users.
func (v vote) refusal(needed int) error { return v.because(v.unset(needed)) }

func (v vote) unset(needed int) error {
	switch {
	case v.count(yes)+v.count(unknown) >= needed:
		return v.undecided()
	case v.count(no) > 0:
		return fmt.Errorf("%w: %s", lock.ErrContended, v)
	case v.count(refused) > 0:
		return fmt.Errorf("%w: %s: %v", lock.ErrRefused, v, v.why(refused))
	}
	return fmt.Errorf("%w: %s: %v", lock.ErrNotSent, v, v.why(notSent))
}

// own returns what a vote says about the holder, for a request that only the owner of the value can make. It is nil
// if a majority did it, and ErrNotHeld if a majority does not have the value, because then the service does not
// either. If no server can have done anything, the error says so. Any other error is of unknown outcome.
func (v vote) own() error {
	if v.count(yes) >= v.quorum() {
		return nil
	}
	return v.because(v.disowned())
}

func (v vote) disowned() error {
	switch {
	case v.count(no) >= v.quorum():
		return fmt.Errorf("%w: %s", lock.ErrNotHeld, v)
	case v.count(yes)+v.count(no)+v.count(unknown) > 0:
		return v.undecided()
	case v.count(refused) > 0:
		return fmt.Errorf("%w: %s: %v", lock.ErrRefused, v, v.why(refused))
	}
	return fmt.Errorf("%w: %s: %v", lock.ErrNotSent, v, v.why(notSent))
}

// undecided returns an error of unknown outcome. It wraps only a silent server's error: what is certain of one server
// is not certain of the service.
func (v vote) undecided() error {
	if err := v.why(unknown); err != nil {
		return fmt.Errorf("%s: %w", v, err)
	}
	return errors.New(v.String())
}
