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
	keys  func() []string // what stands now, of the whole run
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

// all returns the keys of what stands.
func (s *standing) all() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.keys)
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

// last returns the key of what was done last, and with it those right before it that belong to the same fault: keys that
// are equal up to a slash.
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

// heal undoes everything, the last first, and what belongs to one fault at once: a fault may stand at a great many processes.
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
			keys: s.standing.all,
		})
	}
	if result != nil {
		raw, wrong := json.Marshal(result)
		resp.Result, err = raw, errors.Join(err, wrong)
	}
	return err
}
