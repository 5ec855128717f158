package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// order is something that the agent does to a process beyond looking at it and signalling it: to its links, its clock,
// its disk. Each family of orders is a file of its own.
type order func(ctx context.Context, c call) (any, error)

// call is one use of an order.
type call struct {
	process Process
	with    []Process // further processes of the run that it is about
	key     string    // what it leaves standing is undone by this name
	args    json.RawMessage
	links   *links
	// stand registers what undoes the order. It must be called before the first effect, so that a half-done order is undone
	// as well. An undo may be called when nothing was done, and when the process is gone.
	stand func(undo)
}

// undo takes back what an order did and returns what it saw, as the answer of the undo request.
type undo func(ctx context.Context) (any, error)

// decode reads the arguments of an order, strictly.
func decode[T any](raw json.RawMessage) (T, error) {
	var v T
	if err := json.Unmarshal(raw, &v); err != nil {
		return v, fmt.Errorf("arguments of the order: %w", err)
	}
	return v, nil
}

// healTime is how long the agent may take to undo everything when its control stream has ended.
const healTime = 2 * time.Second

// standing is what orders have left, in the order in which it was done.
type standing struct {
	mu   sync.Mutex
	keys []string
	undo map[string]undo
}

func (s *standing) add(key string, u undo) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.undo == nil {
		s.undo = make(map[string]undo)
	}
	if _, again := s.undo[key]; !again { // the same order for a process that took the first one's place
		s.keys = append(s.keys, key)
	}
	s.undo[key] = u
}

// take returns what undoes key, once.
func (s *standing) take(key string) (undo, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	u, ok := s.undo[key]
	delete(s.undo, key)
	s.keys = slices.DeleteFunc(s.keys, func(k string) bool { return k == key })
	return u, ok
}

// last returns the key of what was done last.
func (s *standing) last() (string, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.keys) == 0 {
		return "", false
	}
	return s.keys[len(s.keys)-1], true
}

// heal undoes everything, the last first.
func (s *standing) heal() error {
	ctx, cancel := context.WithTimeout(context.Background(), healTime)
	defer cancel()
	var errs []error
	for {
		key, ok := s.last()
		if !ok {
			return errors.Join(errs...)
		}
		if u, ok := s.take(key); ok {
			if _, err := u(ctx); err != nil {
				errs = append(errs, fmt.Errorf("undo %s: %w", key, err))
			}
		}
	}
}

// perform carries out an order or an undo and fills in the answer.
func (s *server) perform(ctx context.Context, r request, resp *response) error {
	var result any
	var err error
	if r.Do == doUndo {
		u, ok := s.standing.take(r.Key)
		if !ok {
			return fmt.Errorf("nothing stands under %q", r.Key)
		}
		result, err = u(ctx)
	} else {
		result, err = orders[r.Do](ctx, call{
			process: r.Process, with: r.With, key: r.Key, args: r.Args, links: s.links, stand: func(u undo) { s.standing.add(r.Key, u) },
		})
	}
	if result != nil {
		raw, wrong := json.Marshal(result)
		resp.Result, err = raw, errors.Join(err, wrong)
	}
	return err
}
