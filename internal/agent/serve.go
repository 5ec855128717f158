package agent

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/lockquake/lockquake/internal/agent/proc"
	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/internal/wire"
)

// target is a process of the run.
type target struct {
	kill    bool // when the stream ends
	stopped bool // stopped by us, and not continued since
}

type server struct {
	mechanisms Mechanisms
	owned      map[proc.Process]*target
	standing   standing
	orders     sync.WaitGroup // under way

	writing sync.Mutex // guards out
	out     *json.Encoder
}

// Main serves requests from stdin until it ends or ctx is cancelled, and then undoes all active orders. It is the body
// of `lockquake agent`.
func Main(ctx context.Context, stdin io.Reader, stdout io.Writer, m Mechanisms) error {
	if err := proc.Supported(); err != nil {
		return err
	}
	wire.OutliveReader()
	raisePriority()
	s := &server{mechanisms: m, owned: make(map[proc.Process]*target), out: json.NewEncoder(stdout)}
	defer s.heal()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // before heal, so that orders in progress give up
	err := s.out.Encode(hello{
		Version: Version, PID: os.Getpid(), BootID: clock.BootID(),
		TimeNS: clock.TimeNamespace(),
	})
	if err != nil {
		return fmt.Errorf("greet the supervisor: %w", err)
	}
	requests, ended := readRequests(ctx, stdin)
	for {
		select {
		case <-ctx.Done():
			return nil
		case r, ok := <-requests:
			if !ok {
				return <-ended
			}
			if err := s.serve(ctx, r); err != nil {
				return nil //nolint:nilerr // the supervisor is gone: that is the end of the stream, not a failure
			}
		}
	}
}

// readRequests parses lines in a goroutine, because a read of stdin cannot be cancelled.
func readRequests(ctx context.Context, stdin io.Reader) (<-chan request, <-chan error) {
	requests, ended := make(chan request), make(chan error, 1)
	go func() {
		defer close(requests)
		lines := bufio.NewScanner(stdin)
		for lines.Scan() {
			var r request
			if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
				ended <- fmt.Errorf("read a request: %w", err)
				return
			}
			select {
			case requests <- r:
			case <-ctx.Done():
				return
			}
		}
		ended <- nil
	}()
	return requests, ended
}

// serve carries out a request and answers it. An order, which may take long, runs concurrently with later requests.
func (s *server) serve(ctx context.Context, r request) error {
	h, known := s.mechanisms.handler(r.Do)
	switch {
	case known:
		for _, p := range append([]proc.Process{r.Process}, r.With...) {
			if s.owned[p] == nil && (p != proc.Process{} || !h.Machine) {
				r.Process = p
				return s.answer(r, s.do) // do returns the error
			}
		}
	case r.Do != doUndo && r.Do != doStanding && r.Do != doSupports:
		return s.answer(r, s.do)
	}
	s.orders.Go(func() {
		// the loop sees the end of the stream
		_ = s.answer(r, func(r request, resp *response) error { return s.perform(ctx, r, resp) })
	})
	return nil
}

func (s *server) answer(r request, do func(request, *response) error) error {
	resp := response{ID: r.ID}
	if err := do(r, &resp); err != nil {
		resp.Error, resp.Gone = err.Error(), errors.Is(err, proc.ErrNoProcess)
	}
	resp.At = clock.Now()
	s.writing.Lock()
	defer s.writing.Unlock()
	return s.out.Encode(resp)
}

func (s *server) do(r request, resp *response) error {
	if r.Do == doNow {
		resp.Now = clock.Now()
		return nil
	}
	if r.Do == doOwn {
		if r.Process.PID == os.Getpid() {
			return errors.New("the agent is not a target")
		}
		p, err := proc.Find(r.Process.PID)
		if err != nil {
			return err
		}
		s.owned[p] = &target{kill: r.Kill}
		resp.Process = &p
		return nil
	}
	t := s.owned[r.Process]
	if t == nil {
		return fmt.Errorf("pid %d does not belong to this run", r.Process.PID)
	}
	switch r.Do {
	case doInspect:
		state, err := r.Process.Inspect()
		resp.State = &state
		return err
	case doSignal:
		if r.Signal == "STOP" {
			t.stopped = true // before the signal: better one SIGCONT too many
		}
		err := s.mechanisms.signal(r.Process, r.Signal)
		if r.Signal == "CONT" && err == nil {
			t.stopped = false
		}
		if err == nil {
			resp.State = r.Process.Watch(r.Signal)
		}
		return err
	}
	return fmt.Errorf("unknown order %q", r.Do)
}

// heal undoes all orders, continues stopped targets, and kills those registered with kill. Processes that have ended
// are skipped.
func (s *server) heal() {
	for p, t := range s.owned {
		if t.kill {
			_ = s.mechanisms.signal(p, "KILL")
		}
		if t.stopped {
			_ = s.mechanisms.signal(p, "CONT")
		}
	}
	s.drain()
	if err := s.standing.heal(); err != nil {
		fmt.Fprintln(os.Stderr, "agent:", err) // only its log is left
	}
}

// drainTime is how long orders in progress may take to give up before everything is undone anyway.
const drainTime = 500 * time.Millisecond

// drain waits for the orders in progress, so that none of them takes effect after everything was undone.
func (s *server) drain() {
	done := make(chan struct{})
	go func() {
		s.orders.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(drainTime):
		fmt.Fprintln(os.Stderr, "agent: a running order did not stop")
	}
}
