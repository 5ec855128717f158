package register

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/lock"
	"github.com/lockquake/lockquake/workloads/resource"
)

// peers are one user's connections to all replicas. Each replica gets its requests one by one, in the order in which
// they were made. A slow or missing replica delays no other.
type peers struct {
	queues  []chan pending
	life    context.Context
	end     context.CancelFunc
	running sync.WaitGroup
}

// pending is a request on its way to one replica.
type pending struct {
	request replicaRequest
	until   time.Time // then the request is given up
	answer  chan<- vote
}

// vote is the answer of one replica.
type vote struct {
	replicaReply
	err error // nil: the request was carried out
}

const (
	// patience bounds a request without a deadline.
	patience = 10 * time.Second
	// maxPending is how many requests to one replica may wait.
	maxPending = 1024
)

var errOverrun = fmt.Errorf("%w: %d requests wait already", lock.ErrNotSent, maxPending)

// connect returns when a majority of the replicas is connected. Each request tries the others again.
func connect(ctx context.Context, addresses []string) (*peers, error) {
	p := &peers{}
	p.life, p.end = context.WithCancel(context.Background())
	tried := make(chan error, len(addresses))
	for i, address := range addresses {
		q := make(chan pending, maxPending)
		p.queues = append(p.queues, q)
		l := &line{who: fmt.Sprintf("replica %d", i+1), address: address}
		dial, cancel := context.WithCancel(ctx)
		stop := context.AfterFunc(p.life, cancel)
		p.running.Go(func() {
			defer stop()
			tried <- l.connect(dial)
			cancel()
			p.serve(l, q)
		})
	}
	connected, errs := 0, []error(nil)
	for range addresses {
		err := <-tried
		if err != nil {
			errs = append(errs, err)
		} else if connected++; connected >= p.majority() {
			return p, nil
		}
	}
	p.close()
	return nil, fmt.Errorf("no majority of the replicas: %w", errors.Join(errs...))
}

// majority returns the smallest number that is more than half of the replicas.
func (p *peers) majority() int { return len(p.queues)/2 + 1 }

// serve sends the requests for one replica until the connection is closed.
func (p *peers) serve(l *line, q <-chan pending) {
	defer func() { _ = l.Close() }() // no request waits for an answer
	for {
		select {
		case <-p.life.Done():
			return
		case e := <-q:
			e.answer <- carry(p.life, l, e)
		}
	}
}

func carry(life context.Context, l *line, e pending) (v vote) {
	ctx, cancel := context.WithDeadline(life, e.until)
	defer cancel()
	if err := ctx.Err(); err != nil {
		v.err = fmt.Errorf("%w: %s: %w", lock.ErrNotSent, l.who, err)
		return v
	}
	if v.err = l.ask(ctx, e.request, &v.replicaReply); v.err == nil {
		v.err = v.replicaReply.err()
	}
	return v
}

// one asks the first replica that answers.
func (p *peers) one(ctx context.Context, r replicaRequest) error {
	var errs []error
	for i := range p.queues {
		v := p.ask(ctx, r, i, i+1, func(*votes) bool { return false })
		if len(v.done)+len(v.refused) > 0 {
			return errors.Join(v.errs...)
		}
		errs = append(errs, v.errs...)
	}
	return errors.Join(errs...)
}

// all sends a request to all replicas. It returns when the votes decide, when all have answered, or when ctx ends.
func (p *peers) all(ctx context.Context, r replicaRequest, decided func(*votes) bool) *votes {
	return p.ask(ctx, r, 0, len(p.queues), decided)
}

func (p *peers) ask(ctx context.Context, r replicaRequest, from, to int, decided func(*votes) bool) *votes {
	until, ok := ctx.Deadline()
	if !ok {
		until = clock.Time(clock.Now() + int64(patience))
	}
	answers := make(chan vote, to-from)
	for _, q := range p.queues[from:to] {
		select {
		case q <- pending{request: r, until: until, answer: answers}:
		default:
			answers <- vote{err: errOverrun}
		}
	}
	v := &votes{open: to - from}
	for v.open > 0 && !decided(v) {
		select {
		case a := <-answers:
			v.add(a)
		case <-ctx.Done():
			v.errs = append(v.errs, context.Cause(ctx))
			return v
		}
	}
	return v
}

// close ends all connections.
func (p *peers) close() {
	p.end()
	p.running.Wait()
}

// votes are the answers of the replicas to one request.
type votes struct {
	done    []standing // of replicas that carried it out
	refused []standing // of replicas whose guard refused it
	not     int        // replicas that certainly did nothing for another reason
	unknown int        // replicas with an unknown outcome
	open    int        // replicas that have not answered
	errs    []error
}

func (v *votes) add(a vote) {
	v.open--
	if a.err != nil {
		v.errs = append(v.errs, a.err)
	}
	switch {
	case a.err == nil:
		v.done = append(v.done, a.standing)
	case errors.Is(a.err, resource.ErrFenced):
		v.refused = append(v.refused, a.standing)
	case errors.Is(a.err, resource.ErrRefused), errors.Is(a.err, lock.ErrNotSent):
		v.not++
	default:
		v.unknown++
	}
}

// overtaken counts the replicas that refused because they have a value of a later epoch.
func (v *votes) overtaken(epoch uint64) (n int) {
	for _, s := range v.refused {
		if s.Epoch > epoch {
			n++
		}
	}
	return n
}

// latest returns the latest value among the replicas that carried out the request.
func (v *votes) latest() (s standing) {
	for i, x := range v.done {
		if i == 0 || x.after(s.stamp) {
			s = x
		}
	}
	return s
}
