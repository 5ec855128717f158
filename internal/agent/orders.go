package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockquake/lockquake/internal/agent/proc"
)

// Handler carries out an order of a mechanism: anything beyond inspecting and signalling a process.
type Handler struct {
	// Do carries out the order and returns the answer.
	Do func(ctx context.Context, c Call) (any, error)
	// Can returns why the order cannot be carried out on this machine; nil if it can. It tries, and leaves nothing
	// behind. A Handler without Can works wherever an agent runs.
	Can func() error
	// Machine means that the order concerns the machine, and needs no process.
	Machine bool
}

// Call is one use of an order.
type Call struct {
	Process proc.Process
	With    []proc.Process // further processes of the run that it concerns
	Key     string         // name for the undo
	Args    json.RawMessage
	// Stand registers the undo of the order. It must be called before the first effect, so that a half-done order is
	// undone too. An undo may be called when nothing was done, or after the process has ended.
	Stand func(Undo)
}

// Undo undoes an order and returns the answer to the undo request.
type Undo func(ctx context.Context) (any, error)

// Takes returns a Handler's Do that decodes the order's arguments for do.
func Takes[A any](do func(ctx context.Context, c Call, args A) (any, error)) func(context.Context, Call) (any, error) {
	return func(ctx context.Context, c Call) (any, error) {
		var args A
		if err := json.Unmarshal(c.Args, &args); err != nil {
			return nil, fmt.Errorf("arguments of the order: %w", err)
		}
		return do(ctx, c, args)
	}
}

// Mechanism is one way to act on processes, from one of the folders below.
type Mechanism struct {
	Orders map[string]Handler // by the names in the mechanism's folder of chaos
	// Signal sends a signal with send, once nothing that the mechanism does to the process prevents its effect. nil
	// means that nothing can.
	Signal func(p proc.Process, name string, send func() error) error
}

// Mechanisms are the mechanisms of an agent, or of this process.
type Mechanisms []Mechanism

// handler finds an order.
func (m Mechanisms) handler(do string) (h Handler, ok bool) {
	for _, one := range m {
		if h, ok = one.Orders[do]; ok {
			break
		}
	}
	return h, ok
}

// Supports returns why an order cannot be carried out on this machine; nil if it can.
func (m Mechanisms) Supports(do string) error {
	if err := proc.Supported(); err != nil {
		return err
	}
	h, ok := m.handler(do)
	if !ok {
		return fmt.Errorf("unknown order %q", do)
	}
	if h.Can == nil {
		return nil
	}
	return h.Can()
}

// Ask carries out an order in this process, without an agent. It is for orders that need no undo.
func (m Mechanisms) Ask(ctx context.Context, o Order, result any) error {
	h, ok := m.handler(o.Do)
	if !ok {
		return fmt.Errorf("unknown order %q", o.Do)
	}
	args, err := json.Marshal(o.Args)
	if err != nil {
		return fmt.Errorf("arguments of %s: %w", o.Do, err)
	}
	answer, err := h.Do(ctx, Call{Process: o.Process, With: o.With, Key: o.Key, Args: args, Stand: func(Undo) {}})
	raw, wrong := json.Marshal(answer)
	return errors.Join(err, wrong, json.Unmarshal(raw, result))
}

// signal sends a signal through all mechanisms that have a Signal.
func (m Mechanisms) signal(p proc.Process, name string) error {
	send := func() error { return p.Signal(name) }
	for _, one := range m {
		if next := send; one.Signal != nil {
			send = func() error { return one.Signal(p, name, next) }
		}
	}
	return send()
}

// healTime bounds the undo of everything after the control stream has ended.
const healTime = 2 * time.Second

// standing has the undos of orders, in the order in which they were carried out.
type standing struct {
	mu   sync.Mutex
	keys []string
	undo map[string]Undo
}

func (s *standing) add(key string, u Undo) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.undo == nil {
		s.undo = make(map[string]Undo)
	}
	if _, again := s.undo[key]; !again { // the same order for a process that replaced the first one
		s.keys = append(s.keys, key)
	}
	s.undo[key] = u
}

// all returns all keys.
func (s *standing) all() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.keys)
}

// take returns the undo of a key, once.
func (s *standing) take(key string) (Undo, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	u, ok := s.undo[key]
	delete(s.undo, key)
	s.keys = slices.DeleteFunc(s.keys, func(k string) bool { return k == key })
	return u, ok
}

// last returns the key of the last order, with those right before it that belong to the same fault: keys that are equal
// up to a slash.
func (s *standing) last() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := len(s.keys) - 1
	if i < 0 {
		return nil
	}
	fault, _, several := strings.Cut(s.keys[i], "/")
	for several && i > 0 && strings.HasPrefix(s.keys[i-1], fault+"/") {
		i--
	}
	return slices.Clone(s.keys[i:])
}

// heal undoes everything, the last order first. All orders of one fault are undone concurrently, since they may be
// many.
func (s *standing) heal() error {
	ctx, cancel := context.WithTimeout(context.Background(), healTime)
	defer cancel()
	var errs []error
	for keys := s.last(); keys != nil; keys = s.last() {
		undone := make([]error, len(keys))
		var all sync.WaitGroup
		for i, key := range keys {
			u, ok := s.take(key)
			if !ok {
				continue
			}
			all.Go(func() {
				if _, err := u(ctx); err != nil {
					undone[i] = fmt.Errorf("undo %s: %w", key, err)
				}
			})
		}
		all.Wait()
		errs = append(errs, undone...)
	}
	return errors.Join(errs...)
}

// perform carries out an order, an undo or a question and fills in the answer.
func (s *server) perform(ctx context.Context, r request, resp *response) error {
	var result any
	var err error
	switch r.Do {
	case doUndo:
		u, ok := s.standing.take(r.Key)
		if !ok {
			return fmt.Errorf("there is no order %q", r.Key)
		}
		result, err = u(ctx)
	case doStanding:
		result = s.standing.all()
	case doSupports:
		var do string
		if err = json.Unmarshal(r.Args, &do); err == nil {
			err = s.mechanisms.Supports(do)
		}
	default:
		h, _ := s.mechanisms.handler(r.Do)
		result, err = h.Do(ctx, Call{
			Process: r.Process, With: r.With, Key: r.Key, Args: r.Args,
			Stand: func(u Undo) { s.standing.add(r.Key, u) },
		})
	}
	if result != nil {
		raw, wrong := json.Marshal(result)
		resp.Result, err = raw, errors.Join(err, wrong)
	}
	return err
}
