package register

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/wire"
	"github.com/lockquake/lockquake/lock"
	"github.com/lockquake/lockquake/workloads/resource"
)

// stamp orders values identically on all replicas: by epoch, then by number within the epoch.
type stamp struct {
	Epoch  uint64 `json:"epoch,omitempty"`
	Number int64  `json:"number,omitempty"`
}

func (s stamp) after(o stamp) bool {
	return s.Epoch > o.Epoch || s.Epoch == o.Epoch && s.Number > o.Number
}

// who identifies an access identically on all replicas, so that the replicas that carried it out can be counted.
type who struct {
	User   string `json:"user,omitempty"` // "client-1/0"
	Grant  uint32 `json:"grant,omitempty"`
	Token  uint64 `json:"token,omitempty"`  // of the grant: its epoch
	Access int64  `json:"access,omitempty"` // number among the accesses of the user's connection, from 1
}

// standing is a replica's state under one lock.
type standing struct {
	stamp
	Value int64 `json:"value,omitempty"`
	// From is the write that stored the value first. It stays the same when a reader writes the value back to other
	// replicas.
	From who `json:"from,omitzero"`
}

// replicaRequest is one line from a user to a replica.
type replicaRequest struct {
	Op   string `json:"op"`  // "get", "mark" or "put"
	For  string `json:"for"` // "read" or "write": the access that the request is part of
	Lock string `json:"lock"`
	who
	Number int64 `json:"number,omitempty"` // put: of the value within its epoch, which is the token
	Value  int64 `json:"value,omitempty"`  // put
	From   who   `json:"from,omitzero"`    // put for a read: the write that the value comes from
}

// The operations of a replicaRequest.
const (
	opGet  = "get"  // return the current value
	opMark = "mark" // refuse lower epochs from now on, and return the current value
	opPut  = "put"  // store the value
)

// replicaReply answers a replicaRequest. A refusal contains the current value too.
type replicaReply struct {
	Outcome string `json:"outcome"`
	Fenced  bool   `json:"fenced,omitempty"`
	Error   string `json:"error,omitempty"`
	standing
}

func (r replicaReply) err() error {
	return reply{Outcome: r.Outcome, Fenced: r.Fenced, Error: r.Error}.err()
}

// replica is one of several that hold the same cells. It knows nothing of the others: an access counts once a
// majority did it.
type replica struct {
	guard  string
	names  map[string]int
	record func(*history.Event)

	mu    sync.Mutex
	cells []replicaCell
}

type replicaCell struct {
	standing
	seen    uint64 // the highest marked epoch
	applied int64  // writes
}

func newReplica(guard string, locks []string, record func(*history.Event)) (*replica, error) {
	if guard != resource.GuardNone && guard != GuardMajority && guard != GuardAll && guard != GuardOne {
		return nil, fmt.Errorf("guard is %q: want %s, %s, %s or %s", guard, resource.GuardNone, GuardMajority, GuardAll,
			GuardOne)
	}
	r := &replica{
		guard: guard, names: make(map[string]int, len(locks)), record: record,
		cells: make([]replicaCell, len(locks)),
	}
	for i, name := range locks {
		r.names[name] = i
	}
	return r, nil
}

// answer carries out one request.
func (r *replica) answer(_ context.Context, line []byte) any {
	var q replicaRequest
	if err := json.Unmarshal(line, &q); err != nil {
		return replicaReply{Outcome: wire.OutcomeFail, Error: fmt.Sprintf("request is no JSON object: %v", err)}
	}
	got, err := r.apply(q)
	if err != nil {
		return replicaReply{
			Outcome: wire.OutcomeFail, Fenced: errors.Is(err, resource.ErrFenced), Error: err.Error(),
			standing: got,
		}
	}
	return replicaReply{Outcome: wire.OutcomeOK, standing: got}
}

// apply does one operation and returns the current value after it. The error wraps ErrFenced or ErrRefused.
func (r *replica) apply(q replicaRequest) (standing, error) {
	i, ok := r.names[q.Lock]
	if !ok {
		return standing{}, fmt.Errorf("%w: there is no lock %q", resource.ErrRefused, q.Lock)
	}
	asker, err := r.event(i, q.who, q.For)
	if err != nil {
		return standing{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	c := &r.cells[i]
	switch q.Op {
	case opGet:
		if q.For == opRead {
			r.took(asker, c.Value)
		}
	case opMark:
		if err := r.look(c, q.Token); err != nil {
			r.refused(asker, q.Value, err)
			return c.standing, err
		}
		c.seen = q.Token
	case opPut:
		return c.standing, r.put(c, q, asker)
	default:
		return standing{}, fmt.Errorf("%w: op is %q: want %s, %s or %s", resource.ErrRefused, q.Op, opGet, opMark,
			opPut)
	}
	return c.standing, nil
}

// look refuses an epoch lower than the highest marked one.
func (r *replica) look(c *replicaCell, epoch uint64) error {
	switch {
	case r.guard == resource.GuardNone:
		return nil
	case epoch == 0:
		return resource.ErrNoToken
	case epoch < c.seen:
		return resource.Fenced(lock.Reason{Cause: lock.CauseTokenLower, Seen: c.seen}, "epoch %d is lower than %d",
			epoch, c.seen)
	}
	return nil
}

// put stores a value in a cell: the writer's own, or one that a reader found. The reader writes it back under its own
// epoch, so that no older value can replace it.
func (r *replica) put(c *replicaCell, q replicaRequest, asker history.Event) error {
	if err := r.look(c, q.Token); err != nil {
		r.refused(asker, q.Value, err)
		return err
	}
	next := stamp{Epoch: q.Token, Number: q.Number}
	if keepsOrder(r.guard) { // the other guards keep no order: they store the marks only
		if !next.after(c.stamp) {
			return fmt.Errorf("%w: the current value is newer", resource.ErrRefused)
		}
		c.seen = q.Token
	}
	if q.For == opWrite {
		c.standing = standing{stamp: next, Value: q.Value, From: q.who}
		c.applied++
		r.took(asker, q.Value)
		return nil
	}
	if q.From != c.From && q.From != (who{}) { // a write that had not reached this replica
		found, err := r.event(r.names[q.Lock], q.From, opWrite)
		if err != nil {
			return err
		}
		c.applied++
		r.took(found, q.Value)
	}
	c.standing = standing{stamp: next, Value: q.Value, From: q.From}
	r.took(asker, q.Value)
	return nil
}

// event starts the record of an access.
func (r *replica) event(lock int, w who, kind string) (history.Event, error) {
	u, err := history.ParseUser(w.User)
	if err != nil {
		return history.Event{}, fmt.Errorf("%w: %w", resource.ErrRefused, err)
	}
	e := history.Event{
		Kind: history.EffectWrite, Phase: history.Ok, User: u, Grant: w.Grant, Lock: uint16(lock), Token: w.Token,
		Valid: w.Access,
	}
	switch kind {
	case opRead:
		e.Kind = history.EffectRead
	case opWrite:
	default:
		return e, fmt.Errorf("%w: for is %q: want %s or %s", resource.ErrRefused, kind, opRead, opWrite)
	}
	return e, nil
}

// took records that an access was carried out here.
func (r *replica) took(e history.Event, value int64) {
	e.Value = value
	r.record(&e)
}

// refused records that an access was refused here.
func (r *replica) refused(e history.Event, value int64, why error) {
	e.Phase, e.Code, e.Value = history.Fail, history.CodeFenced, value
	r.record(&e)
	resource.RecordReason(r.record, &e, why)
}

// final reads a cell for the judge.
func (r *replica) final(i int) (resource.Final, error) {
	if i < 0 || i >= len(r.cells) {
		return resource.Final{}, fmt.Errorf("%w: there is no lock with number %d of %d", resource.ErrRefused, i,
			len(r.cells))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.cells[i]
	r.record(&history.Event{
		Kind: history.Final, Phase: history.Info, Lock: uint16(i), Value: c.Value,
		Valid: c.applied,
	})
	return resource.Final{Value: c.Value, Applied: c.applied, Epoch: c.Epoch, Number: c.Number}, nil
}

// Replica runs the process of one replica.
func Replica(ctx context.Context, o resource.Options) error {
	return resource.Drive(ctx, o, "replica", func(ctx context.Context) (resource.Body, error) {
		h, err := listen(ctx, o)
		return &replicaBody{host: h}, err
	})
}

// replicaBody drives a replica within its process.
type replicaBody struct {
	host
	replica *replica
}

func (b *replicaBody) Start(ctx context.Context, s *wire.Start, rec *wire.Recorder) (string, error) {
	r, err := newReplica(s.Guard, s.Locks, func(e *history.Event) { rec.Append(e) })
	if err != nil {
		return "", err
	}
	b.replica = r
	return b.open(ctx, r.answer), nil
}

func (b *replicaBody) Final(_ context.Context, lock int) (resource.Final, error) {
	return b.replica.final(lock)
}
