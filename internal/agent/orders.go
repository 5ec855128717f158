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

// Handler is how an order of a mechanism is carried out: what the agent does beyond looking at a process and signalling
// it.
type Handler struct {
	// Do carries it out. What it returns is the answer.
	Do func(ctx context.Context, c Call) (any, error)
	// Can tells why the order cannot be carried out on this machine; nil where it can. It tries, and leaves nothing
	// behind. A Handler without Can is carried out wherever an agent runs.
	Can func() error
	// Machine tells that the order is about the machine, and needs no process.
	Machine bool
}

// Call is one use of an order.
type Call struct {
	Process proc.Process
	With    []proc.Process // further processes of the run that it is about
	Key     string         // what it leaves standing is undone by this name
	Args    json.RawMessage
	// Stand registers what undoes the order. It must be called before the first effect, so that a half-done order is
	// undone as well. An undo may be called when nothing was done, and when the process is gone.
	Stand func(Undo)
}

// Undo takes back what an order did and returns what it saw, as the answer of the undo request.
type Undo func(ctx context.Context) (any, error)

// Takes is a Handler's Do that is given the order's arguments.
func Takes[A any](do func(ctx context.Context, c Call, args A) (any, error)) func(context.Context, Call) (any, error) {
	return func(ctx context.Context, c Call) (any, error) {
		var args A
		if err := json.Unmarshal(c.Args, &args); err != nil {
			return nil, fmt.Errorf("arguments of the order: %w", err)
		}
		return do(ctx, c, args)
	}
}

// Mechanism is one way to act on processes: what a folder below gives to the agent.
type Mechanism struct {
	Orders map[string]Handler // by the names that the mechanism's folder in chaos gives them
	// Signal sends a signal by send, once nothing that the mechanism does to the process keeps it from taking effect;
	// nil where nothing can.
	Signal func(p proc.Process, name string, send func() error) error
}

// Mechanisms is what an agent, or this process, can do.
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

// Supports tells why an order cannot be carried out on this machine; nil where it can.
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

// Ask carries out an order in this process, without an agent. It is for orders that leave nothing standing.
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

// signal sends a signal through all mechanisms that must know of it.
func (m Mechanisms) signal(p proc.Process, name string) error {
	send := func() error { return p.Signal(name) }
	for _, one := range m {
		if next := send; one.Signal != nil {
			send = func() error { return one.Signal(p, name, next) }
		}
	}
	return send()
}

// healTime is how long the agent may take to undo everything when its control stream has ended.
const healTime = 2 * time.Second

// standing is what orders have left, in the order in which it was done.
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
	if _, again := s.undo[key]; !again { // the same order for a process that took the first one's place
		s.keys = append(s.keys, key)
	}
	s.undo[key] = u
}

// all returns the keys of what stands.
func (s *standing) all() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.keys)
}

// take returns what undoes key, once.
func (s *standing) take(key string) (Undo, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	u, ok := s.undo[key]
	delete(s.undo, key)
	s.keys = slices.DeleteFunc(s.keys, func(k string) bool { return k == key })
	return u, ok
}

// last returns the key of what was done last, and with it those right before it that belong to the same fault: keys
// that are equal up to a slash.
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

// heal undoes everything, the last order first. All orders of one fault are undone at once, since it may stand at many
// processes.
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
			return fmt.Errorf("nothing stands under %q", r.Key)
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
