package resource

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/lockquake/lockquake/internal/cluster"
	"github.com/lockquake/lockquake/lock"
)

// Guards of replicas. A grant's epoch is its fencing token.
const (
	// GuardMajority has each grant mark its epoch on a majority of the replicas before its first access. A replica refuses
	// marks and values of lower epochs than the highest that it has seen. Whoever reads puts down what it has found on a
	// majority, under its own epoch: so a write that had come to few replicas counts from then on, or never.
	GuardMajority = "majority"
	// GuardOne has it marked on the first replica that answers, and only there are lower epochs refused. The mark is lost
	// with that replica.
	GuardOne = "one"
)

const (
	epochName = "epoch"
	epochPort = 7071
	// epochReplicas is how many there are: the least of which a majority outlives one.
	epochReplicas = 3
)

var epoch = Kind{
	Name: epochName,
	Doc:  "Three replicas, each a register: an effect counts when a majority has applied it.",
	Guards: []Guard{
		{Name: GuardNone, Doc: "refuses nothing: no epoch is marked"},
		{Name: GuardMajority, Token: true, Doc: "each grant marks its epoch (its token) on a majority before its first access; a replica refuses lower ones"},
		{Name: GuardOne, Token: true, Doc: "the same on one replica only; the mark is lost with it"},
	},
	Replicated: true,
	Specs: func() []cluster.Spec {
		var specs []cluster.Spec
		for i := range epochReplicas {
			name := fmt.Sprintf("%s-%d", epochName, i+1)
			specs = append(specs, cluster.Spec{
				Name: name, Role: cluster.Resource, Ports: []cluster.Port{{Name: epochName, Number: epochPort}},
				Image: cluster.SelfProgram, Stdio: true,
				Command: func(p cluster.Place) []string {
					return []string{cluster.SelfProgram, "replica", "--listen", p.Address(name, epochName)}
				},
			})
		}
		return specs
	},
	Dial: dialEpoch,
}

// epochLink is a user's view of the replicas as one resource.
type epochLink struct {
	*peers
	guard    string
	accesses int64
	tenures  map[string]tenure // by lock
}

// tenure is what a grant has done under its lock.
type tenure struct {
	grant  uint32
	looked bool  // its epoch is marked, and what stood there is known
	number int64 // of the last value that was put down under its epoch
}

func dialEpoch(ctx context.Context, t Target) (Connection, error) {
	p, err := connect(ctx, strings.Split(t.Address, ","))
	if err != nil {
		return nil, fmt.Errorf("epoch: %w", err)
	}
	return &epochLink{peers: p, guard: t.Guard, tenures: map[string]tenure{}}, nil
}

// Read reads the value that a lock protects: what was put down last of all that a majority has. Where epochs are marked, it
// then stands on a majority under the reader's own.
func (l *epochLink) Read(ctx context.Context, a Access) (int64, error) {
	r := l.request(a, opRead)
	found, err := l.look(ctx, r)
	if err != nil {
		return 0, err
	}
	if l.guard == GuardMajority {
		r.Value, r.From = found.Value, found.From
		err = l.put(ctx, r)
	}
	return found.Value, err
}

// Write writes it.
func (l *epochLink) Write(ctx context.Context, a Access, value int64) error {
	r := l.request(a, opWrite)
	r.Value = value
	if !l.tenure(r).looked {
		if _, err := l.look(ctx, r); errors.Is(err, ErrFenced) {
			return err
		} else if err != nil {
			return fmt.Errorf("%w: nothing was written: %w", ErrRefused, err)
		}
	}
	return l.put(ctx, r)
}

// Close closes the connections.
func (l *epochLink) Close() error {
	l.close()
	return nil
}

func (l *epochLink) request(a Access, kind string) replicaRequest {
	l.accesses++
	return replicaRequest{
		For: kind, Lock: a.Lock, who: who{User: a.User.String(), Grant: a.Grant, Token: uint64(a.Token), Access: l.accesses},
	}
}

// tenure returns what the request's grant has done; of another grant's nothing is left.
func (l *epochLink) tenure(r replicaRequest) tenure {
	if t := l.tenures[r.Lock]; t.grant == r.Grant {
		return t
	}
	return tenure{grant: r.Grant}
}

// look marks the grant's epoch, as the guard has it, and returns what was put down last of what a majority has.
func (l *epochLink) look(ctx context.Context, r replicaRequest) (standing, error) {
	t := l.tenure(r)
	r.Op = opGet
	switch {
	case l.guard == GuardMajority:
		r.Op = opMark
	case l.guard == GuardOne && !t.looked:
		mark := r
		mark.Op = opMark
		if err := l.one(ctx, mark); err != nil {
			return standing{}, fmt.Errorf("epoch %d is not marked: %w", r.Token, err)
		}
	}
	v := l.all(ctx, r, func(v *votes) bool {
		return len(v.done) >= l.majority() || len(v.done)+v.open < l.majority()
	})
	if len(v.done) < l.majority() {
		err := errors.Join(v.errs...)
		if len(v.refused) > len(l.queues)-l.majority() {
			err = v.fenced()
		}
		return standing{}, fmt.Errorf("%s on %d of %d replicas: %w", r.Op, len(v.done), len(l.queues), err)
	}
	found := v.latest()
	t.looked = true
	if found.Epoch == r.Token {
		t.number = max(t.number, found.Number)
	}
	l.tenures[r.Lock] = t
	return found, nil
}

// put lets a value stand on a majority. Where fewer have applied it, it does not count; but whoever comes next may find it on
// one of them, and then it does. That is certainly not so where no replica has applied it, or where values of later epochs stand
// on a majority: whoever looks finds one of those.
func (l *epochLink) put(ctx context.Context, r replicaRequest) error {
	t := l.tenure(r)
	t.number++
	l.tenures[r.Lock] = t
	r.Op, r.Number = opPut, t.number
	overtaken := func(v *votes) bool { return l.guard == GuardMajority && v.overtaken(r.Token) >= l.majority() }
	v := l.all(ctx, r, func(v *votes) bool { return len(v.done) >= l.majority() || overtaken(v) })
	switch {
	case len(v.done) >= l.majority():
		return nil
	case overtaken(v):
		return v.fenced()
	case len(v.done)+v.unknown+v.open == 0 && len(v.refused) > 0:
		return v.fenced()
	case len(v.done)+v.unknown+v.open == 0:
		return fmt.Errorf("%w: %w", ErrRefused, errors.Join(v.errs...))
	}
	return fmt.Errorf("applied by %d of %d replicas, refused by %d: %w", len(v.done), len(l.queues), len(v.refused), v.trouble())
}

// fenced is the error of an access that so many guards refused.
func (v *votes) fenced() error {
	for _, err := range v.errs {
		if errors.Is(err, ErrFenced) {
			return err
		}
	}
	return ErrFenced
}

// errMinority says that some replicas applied a value and the others refused it.
var errMinority = errors.New("whoever comes next may find it")

// trouble is why nobody knows what becomes of a value. It wraps nothing that would say that certainly nothing was done.
func (v *votes) trouble() error {
	for _, err := range v.errs {
		if !errors.Is(err, ErrFenced) && !errors.Is(err, ErrRefused) && !errors.Is(err, lock.ErrNotSent) {
			return err
		}
	}
	return errMinority
}
