// Package register has the resources that are lockquake's own processes: the register, and the epoch, which consists
// of three replicas.
package register

import (
	"context"
	"fmt"

	"github.com/lockquake/lockquake/internal/node"
	"github.com/lockquake/lockquake/internal/wire"
	"github.com/lockquake/lockquake/lock"
	"github.com/lockquake/lockquake/workloads/resource"
)

const (
	registerName = "register"
	registerPort = 7070
)

// Kinds returns the register and the epoch.
func Kinds() []resource.Kind { return []resource.Kind{register, epoch} }

var register = resource.Kind{
	Name:   registerName,
	Doc:    "A TCP service with one number per lock, which applies reads and writes in order of arrival.",
	Guards: guards,
	Specs: func() []node.Spec {
		return []node.Spec{{
			Name:  registerName,
			Role:  node.Resource,
			Ports: []node.Port{{Name: registerName, Number: registerPort}},
			Image: node.SelfProgram,
			Command: func(p node.Place) []string {
				return node.Own(registerName, "--listen", p.Address(registerName, registerName))
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
	Version int64  `json:"version,omitempty"` // base version of the write; for GuardCASVersion and GuardFenceVersion
}

// The operations of a request.
const (
	opRead  = "read"
	opCheck = "check" // the first step of a write under a guard of two steps
	opWrite = "write"
)

// reply is the one line that answers a request, in order.
type reply struct {
	Outcome string `json:"outcome"`           // wire.OutcomeOK or wire.OutcomeFail
	Value   int64  `json:"value,omitempty"`   // after the operation
	Version int64  `json:"version,omitempty"` // current version afterwards, from 1
	Fenced  bool   `json:"fenced,omitempty"`
	Error   string `json:"error,omitempty"`
}

// maxRequest bounds one line in bytes.
const maxRequest = 4096

// err returns the error that an answer stands for, or nil.
func (r reply) err() error {
	switch {
	case r.Outcome == wire.OutcomeOK:
		return nil
	case r.Fenced:
		return fmt.Errorf("%w: %s", resource.ErrFenced, r.Error)
	}
	return fmt.Errorf("%w: %s", resource.ErrRefused, r.Error)
}

// link is a user's connection.
type link struct {
	line
	guard string
	known map[string]known // if the guard wantsVersion: by lock
}

// known is the version that a grant last read or wrote.
type known struct {
	grant   uint32
	version int64
}

func dialRegister(ctx context.Context, t resource.Target) (resource.Connection, error) {
	l := &link{line: line{who: registerName, address: t.Address}, guard: t.Guard, known: map[string]known{}}
	return l, l.connect(ctx)
}

// Read reads the value that a lock protects.
func (l *link) Read(ctx context.Context, a resource.Access) (int64, error) {
	return l.do(ctx, a, l.request(opRead, a))
}

// Write writes that value. It announces the point between the two steps of a guard that has two.
func (l *link) Write(ctx context.Context, a resource.Access, value int64) error {
	r := l.request(opWrite, a)
	r.Value = value
	if kindOf(l.guard).TwoSteps {
		check := r
		check.Op = opCheck
		if _, err := l.do(ctx, a, check); err != nil {
			return err
		}
		lock.At(ctx, resource.PointTokenChecked)
	}
	_, err := l.do(ctx, a, r)
	return err
}

// request fills in the fields that the guard checks.
func (l *link) request(op string, a resource.Access) request {
	r := request{Op: op, Lock: a.Lock, User: a.User.String(), Grant: a.Grant, Token: uint64(a.Token)}
	switch l.guard {
	case resource.GuardCASOwner:
		r.Owner = a.Owner
	case resource.GuardCASVersion, resource.GuardFenceVersion:
		if k := l.known[a.Lock]; k.grant == a.Grant {
			r.Version = k.version
		}
	case resource.GuardSequencer, resource.GuardAskThenWrite:
		r.Mode = a.Mode.String()
	}
	return r
}

func (l *link) do(ctx context.Context, a resource.Access, r request) (int64, error) {
	var answer reply
	if err := l.ask(ctx, r, &answer); err != nil {
		return 0, err
	}
	err := answer.err()
	if err == nil && wantsVersion(l.guard) {
		l.known[a.Lock] = known{a.Grant, answer.Version}
	}
	return answer.Value, err
}
