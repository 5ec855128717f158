package resource

import (
	"context"
	"fmt"

	"github.com/lockquake/lockquake/internal/cluster"
	"github.com/lockquake/lockquake/internal/wire"
	"github.com/lockquake/lockquake/lock"
)

const (
	registerName = "register"
	registerPort = 7070
)

var register = Kind{
	Name:   registerName,
	Doc:    "A TCP service with one number for each lock, which applies reads and writes in the order of their arrival.",
	Guards: guards,
	Specs: func() []cluster.Spec {
		return []cluster.Spec{{
			Name:  registerName,
			Role:  cluster.Resource,
			Ports: []cluster.Port{{Name: registerName, Number: registerPort}},
			Image: cluster.SelfProgram,
			Command: func(p cluster.Place) []string {
				return []string{cluster.SelfProgram, registerName, "--listen", p.Address(registerName, registerName)}
			},
			Stdio: true,
		}}
	},
	Dial: dialRegister,
}

// request is one line from a user to the register.
type request struct {
	Op    string `json:"op"` // "read", "check" or "write"
	Lock  string `json:"lock"`
	User  string `json:"user"` // "client-1/0"
	Grant uint32 `json:"grant,omitempty"`
	Token uint64 `json:"token,omitempty"`
	Value int64  `json:"value,omitempty"` // for write and check

	Owner   string `json:"owner,omitempty"`   // the grant's own name; for GuardCASOwner
	Mode    string `json:"mode,omitempty"`    // of the grant, "shared" or left out; for GuardSequencer
	Version int64  `json:"version,omitempty"` // that the value was made from; for GuardCASVersion
}

// The operations of a request.
const (
	opRead  = "read"
	opCheck = "check" // the first step of a write under GuardCheckThenWrite
	opWrite = "write"
)

// reply is the one line that answers a request, in order.
type reply struct {
	Outcome string `json:"outcome"`           // wire.OutcomeOK or wire.OutcomeFail
	Value   int64  `json:"value,omitempty"`   // after the operation
	Version int64  `json:"version,omitempty"` // of what stands there after it, from 1
	Fenced  bool   `json:"fenced,omitempty"`
	Error   string `json:"error,omitempty"`
}

// maxRequest bounds one line in bytes.
const maxRequest = 4096

// err is what an answer says of its request.
func (r reply) err() error {
	switch {
	case r.Outcome == wire.OutcomeOK:
		return nil
	case r.Fenced:
		return fmt.Errorf("%w: %s", ErrFenced, r.Error)
	}
	return fmt.Errorf("%w: %s", ErrRefused, r.Error)
}

// link is a user's connection.
type link struct {
	line
	guard string
	known map[string]known // GuardCASVersion: by lock
}

// known is the version that a grant has read, or made, last.
type known struct {
	grant   uint32
	version int64
}

func dialRegister(ctx context.Context, t Target) (Connection, error) {
	l := &link{line: line{who: registerName, address: t.Address}, guard: t.Guard, known: map[string]known{}}
	return l, l.connect(ctx)
}

// Read reads the value that a lock protects.
func (l *link) Read(ctx context.Context, a Access) (int64, error) {
	return l.do(ctx, a, l.request(opRead, a))
}

// Write writes it. Where the guard works in two steps, the point between them is announced.
func (l *link) Write(ctx context.Context, a Access, value int64) error {
	r := l.request(opWrite, a)
	r.Value = value
	if l.guard == GuardCheckThenWrite {
		check := r
		check.Op = opCheck
		if _, err := l.do(ctx, a, check); err != nil {
			return err
		}
		lock.At(ctx, PointTokenChecked)
	}
	_, err := l.do(ctx, a, r)
	return err
}

// request fills in what the guard wants to see.
func (l *link) request(op string, a Access) request {
	r := request{Op: op, Lock: a.Lock, User: a.User.String(), Grant: a.Grant, Token: uint64(a.Token)}
	switch l.guard {
	case GuardCASOwner:
		r.Owner = a.Owner
	case GuardCASVersion:
		if k := l.known[a.Lock]; k.grant == a.Grant {
			r.Version = k.version
		}
	case GuardSequencer:
		r.Mode = a.Mode.String()
	}
	return r
}

func (l *link) do(ctx context.Context, a Access, r request) (int64, error) {
	var answer reply
	if err := l.ask(ctx, r, &answer); err != nil {
		return 0, err
	}
	err := answer.err()
	if err == nil && l.guard == GuardCASVersion {
		l.known[a.Lock] = known{a.Grant, answer.Version}
	}
	return answer.Value, err
}
