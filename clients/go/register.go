package lockquake

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"time"
)

// register is a user's connection to the resource.
type register struct {
	address, guard string
	conn           net.Conn
	in             *bufio.Reader
	versions       map[int]version // by lock
}

// version is the version of a value that a read or write returned, and the hold that saw it.
type version struct {
	grant  uint32
	number uint64
}

type request struct {
	Op      string `json:"op"`
	Lock    string `json:"lock"`
	User    string `json:"user"`
	Grant   uint32 `json:"grant"`
	Token   uint64 `json:"token,omitempty"`
	Value   *int64 `json:"value,omitempty"`
	Owner   string `json:"owner,omitempty"`
	Version uint64 `json:"version,omitempty"`
}

func (r *register) write(ctx context.Context, h *hold, value int64) error {
	if r.guard == "check-then-write" {
		if _, err := r.ask(ctx, h, request{Op: "check", Value: &value}); err != nil {
			return err
		}
		At(ctx, "token-checked")
	}
	_, err := r.ask(ctx, h, request{Op: "write", Value: &value})
	return err
}

func (r *register) ask(ctx context.Context, h *hold, q request) (int64, error) {
	s := h.user.s.start
	q.Lock, q.User, q.Grant, q.Token = s.Locks[h.lock], fmt.Sprintf("client-%d/%d", s.Index+1, h.user.number), h.op,
		h.grant.Token
	switch v := r.versions[h.lock]; {
	case r.guard == "cas-owner":
		q.Owner = h.grant.ID
	case r.guard == "cas-version" && v.grant == h.op:
		q.Version = v.number
	}
	if r.conn == nil {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", r.address)
		if err != nil {
			return 0, fmt.Errorf("%w: %v", ErrNotSent, err)
		}
		r.conn, r.in = conn, bufio.NewReader(conn)
	}
	var a struct {
		Outcome, Error string
		Value          int64
		Version        uint64
		Fenced         bool
	}
	if err := r.exchange(ctx, q, &a); err != nil {
		r.close() // a late answer must never be taken for the answer to another request
		return 0, err
	}
	switch {
	case a.Fenced:
		return 0, fmt.Errorf("%w: %s", errFenced, a.Error)
	case a.Outcome != "ok":
		return 0, refusal(a.Error)
	}
	r.versions[h.lock] = version{h.op, a.Version}
	return a.Value, nil
}

func (r *register) exchange(ctx context.Context, q request, answer interface{}) error {
	line, err := json.Marshal(q)
	if err != nil {
		return err
	}
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Time{}
	}
	if err := r.conn.SetDeadline(deadline); err != nil {
		return err
	}
	if _, err := r.conn.Write(append(line, '\n')); err != nil {
		return err
	}
	if line, err = r.in.ReadBytes('\n'); err != nil {
		return err
	}
	return json.Unmarshal(line, answer)
}

func (r *register) close() {
	if r != nil && r.conn != nil {
		_ = r.conn.Close() // an error does not matter: no answer is expected
		r.conn = nil
	}
}
