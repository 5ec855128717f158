package register

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/lockquake/lockquake/internal/node"
	"github.com/lockquake/lockquake/lock"
	"github.com/lockquake/lockquake/workloads/resource"
)

// Guards of replicas. A grant's epoch is its fencing token.
const (
	// GuardMajority has each grant mark its epoch on a majority of the replicas before its first access. A replica
	// refuses marks and values of lower epochs than the highest it has seen. A reader writes the value it found back
	// to a majority, under its own epoch. After that a write that reached few replicas counts, or never will.
	GuardMajority = "majority"
	// GuardOne marks the epoch on the first replica that answers, and only that one refuses lower epochs. The mark is
	// lost with that replica.
	GuardOne = "one"
	// GuardAll has each grant mark its epoch on all replicas. Every replica then refuses a late write. But one
	// replica that does not answer stops all users.
	GuardAll = "all"
)

const (
	epochName = "epoch"
	epochPort = 7071
	// epochReplicas is the number of replicas: the smallest with a majority after the loss of one.
	epochReplicas = 3
)

var epoch = resource.Kind{
	Name: epochName,
	Doc:  "Three replicas, each a register: an effect counts once a majority has applied it.",
	Guards: []resource.Guard{
		{Name: resource.GuardNone, Doc: "refuses nothing: no epoch is marked"},
		{
			Name: GuardMajority, Token: true,
			Doc: "each grant marks its epoch (its token) on a majority before its first access; a replica refuses lower ones",
		},
		{Name: GuardAll, Token: true, Doc: "the same on all replicas: a single silent one blocks all"},
		{Name: GuardOne, Token: true, Doc: "the same on one replica only; the mark is lost with it"},
	},
	Replicated: true,
	Specs: func() []node.Spec {
		var specs []node.Spec
		for i := range epochReplicas {
			name := fmt.Sprintf("%s-%d", epochName, i+1)
			specs = append(specs, node.Spec{
				Name: name, Role: node.Resource, Ports: []node.Port{{Name: epochName, Number: epochPort}},
				Image: node.SelfProgram, Stdio: true,
				Command: func(p node.Place) []string {
					return node.Own("replica", "--listen", p.Address(name, epochName))
				},
			})
		}
		return specs
	},
	Dial: dialEpoch,
}

// epochLink presents the replicas to a user as one resource.
type epochLink struct {
	*peers
	guard    string
	accesses int64
	grants   map[string]progress // by lock
}

// progress is what a grant has done under its lock.
type progress struct {
	grant  uint32
	looked bool  // its epoch is marked, and the current value is known
	number int64 // of the last value stored under its epoch
}

func dialEpoch(ctx context.Context, t resource.Target) (resource.Connection, error) {
	p, err := connect(ctx, strings.Split(t.Address, ","))
	if err != nil {
		return nil, fmt.Errorf("epoch: %w", err)
	}
	return &epochLink{peers: p, guard: t.Guard, grants: map[string]progress{}}, nil
}

// Read returns the latest value that a majority has. With marked epochs it also writes that value back to a majority
// under the reader's epoch.
func (l *epochLink) Read(ctx context.Context, a resource.Access) (int64, error) {
	r := l.request(a, opRead)
	found, err := l.look(ctx, r)
	if err != nil {
		return 0, err
	}
	if keepsOrder(l.guard) {
		r.Value, r.From = found.Value, found.From
		err = l.put(ctx, r)
	}
	return found.Value, err
}

// Write writes that value.
func (l *epochLink) Write(ctx context.Context, a resource.Access, value int64) error {
	r := l.request(a, opWrite)
	r.Value = value
	if !l.progressOf(r).looked {
		if _, err := l.look(ctx, r); errors.Is(err, resource.ErrFenced) {
			return err
		} else if err != nil {
			return fmt.Errorf("%w: nothing was written: %w", resource.ErrRefused, err)
		}
	}
	return l.put(ctx, r)
}

// Close closes the connections.
func (l *epochLink) Close() error {
	l.close()
	return nil
}

// enough returns how many replicas must carry out a request.
func (l *epochLink) enough() int {
	if l.guard == GuardAll {
		return len(l.queues)
	}
	return l.majority()
}

// keepsOrder reports whether replicas refuse epochs older than the highest they have seen.
func keepsOrder(guard string) bool { return guard == GuardMajority || guard == GuardAll }

func (l *epochLink) request(a resource.Access, kind string) replicaRequest {
	l.accesses++
	return replicaRequest{
		For: kind, Lock: a.Lock, who: who{
			User: a.User.String(), Grant: a.Grant, Token: uint64(a.Token),
			Access: l.accesses,
		},
	}
}

// progressOf returns the progress of the request's grant; other grants are forgotten.
func (l *epochLink) progressOf(r replicaRequest) progress {
	if t := l.grants[r.Lock]; t.grant == r.Grant {
		return t
	}
	return progress{grant: r.Grant}
}

// look marks the grant's epoch as the guard demands, and returns the latest value that a majority has.
func (l *epochLink) look(ctx context.Context, r replicaRequest) (standing, error) {
	t := l.progressOf(r)
	r.Op = opGet
	switch {
	case keepsOrder(l.guard):
		r.Op = opMark
	case l.guard == GuardOne && !t.looked:
		mark := r
		mark.Op = opMark
		if err := l.one(ctx, mark); err != nil {
			return standing{}, fmt.Errorf("epoch %d is not marked: %w", r.Token, err)
		}
	}
	v := l.all(ctx, r, func(v *votes) bool {
		return len(v.done) >= l.enough() || len(v.done)+v.open < l.enough()
	})
	if len(v.done) < l.enough() {
		err := errors.Join(v.errs...)
		if len(v.refused) > len(l.queues)-l.enough() {
			err = v.fenced()
		}
		return standing{}, fmt.Errorf("%s on %d of %d replicas: %w", r.Op, len(v.done), len(l.queues), err)
	}
	found := v.latest()
	t.looked = true
	if found.Epoch == r.Token {
		t.number = max(t.number, found.Number)
	}
	l.grants[r.Lock] = t
	return found, nil
}

// put writes a value to a majority. If fewer have applied it, it does not count yet: the next holder may find it on
// one of them and write it back, and then it counts. That is impossible if no replica has applied it, or if a
// majority has values of later epochs: the next holder finds one of those.
func (l *epochLink) put(ctx context.Context, r replicaRequest) error {
	t := l.progressOf(r)
	t.number++
	l.grants[r.Lock] = t
	r.Op, r.Number = opPut, t.number
	overtaken := func(v *votes) bool { return l.guard == GuardMajority && v.overtaken(r.Token) >= l.majority() }
	v := l.all(ctx, r, func(v *votes) bool { return len(v.done) >= l.enough() || overtaken(v) })
	switch {
	case len(v.done) >= l.enough():
		return nil
	case overtaken(v):
		return v.fenced()
	case len(v.done)+v.unknown+v.open == 0 && len(v.refused) > 0:
		return v.fenced()
	case len(v.done)+v.unknown+v.open == 0:
		return fmt.Errorf("%w: %w", resource.ErrRefused, errors.Join(v.errs...))
	}
	return fmt.Errorf("applied by %d of %d replicas, refused by %d: %w", len(v.done), len(l.queues), len(v.refused),
		v.trouble())
}

// fenced returns the error of an access that enough guards refused.
func (v *votes) fenced() error {
	for _, err := range v.errs {
		if errors.Is(err, resource.ErrFenced) {
			return err
		}
	}
	return resource.ErrFenced
}

// errMinority says that some replicas applied a value and the others refused it.
var errMinority = errors.New("later readers may see it")

// trouble returns why the outcome of a write is unknown. It wraps no error that means that certainly nothing was
// done.
func (v *votes) trouble() error {
	for _, err := range v.errs {
		if !errors.Is(err, resource.ErrFenced) && !errors.Is(err, resource.ErrRefused) &&
			!errors.Is(err, lock.ErrNotSent) {
			return err
		}
	}
	return errMinority
}
