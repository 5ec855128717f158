package workloads

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/lockquake/lockquake/internal/clock"
)

// The distributions of arrivals of an open loop.
const (
	Poisson = "poisson"
	Uniform = "uniform"
)

// pace is the schedule of an open loop: intended arrivals, which the users of one process take in turn. Each process
// has its share of the rate; independent arrivals of several processes add up to independent arrivals. One goroutine
// waits for the next arrival and hands it to a free user: with a timer for each user, many would be late.
type pace struct {
	rate    float64 // arrivals a second over all users of the run
	uniform bool

	mu      sync.Mutex
	random  *rand.Rand
	gap     float64 // ns between arrivals of this process, on average
	at      float64 // ns from start to the next arrival
	start   int64   // ns of the run's clock
	skipped int64   // due arrivals whose user was stopped

	ctx  context.Context // of the waiting goroutine
	due  chan int64      // from that goroutine to the users
	over chan struct{}   // closed when that goroutine has ended
}

// join makes the schedule when the first user joins; it begins at that time.
func (p *pace) join(ctx context.Context, u User) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.random != nil {
		return
	}
	id := u.Identity()
	p.random = rand.New(rand.NewPCG(u.Random().Uint64(), u.Random().Uint64()))
	p.gap = 1e9 / p.rate * float64(id.Total) / float64(max(id.Process, 1))
	p.start = clock.Now()
	p.at = p.random.Float64() * p.gap
	if !p.uniform {
		p.at = p.random.ExpFloat64() * p.gap
	}
	p.ctx, p.due, p.over = ctx, make(chan int64), make(chan struct{})
	go p.hand()
}

// hand hands each arrival, when it is due, to the user that has waited longest.
func (p *pace) hand() {
	defer close(p.over)
	a := clock.NewAlarm(p.ctx)
	defer a.Close()
	for {
		p.mu.Lock()
		t := p.take()
		p.mu.Unlock()
		if a.Wait(t) == nil {
			select {
			case p.due <- t:
				continue
			case <-p.ctx.Done():
			}
		}
		p.skip(t)
		return
	}
}

// skip counts an arrival that no user began, if it was due.
func (p *pace) skip(t int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if t <= clock.Now() {
		p.skipped++
	}
}

// take returns the next arrival and moves on. The caller holds mu.
func (p *pace) take() int64 {
	t := p.start + int64(p.at)
	step := p.gap
	if !p.uniform {
		step *= p.random.ExpFloat64()
	}
	p.at += step
	return t
}

// next waits for the next arrival for this user. ok is false if ctx ended before.
func (p *pace) next(ctx context.Context) (at time.Time, ok bool) {
	select {
	case t := <-p.due:
		if ctx.Err() == nil {
			return clock.Time(t), true
		}
		p.skip(t)
	case <-ctx.Done():
	}
	return time.Time{}, false
}

// unstarted returns how many arrivals up to end never got a user.
func (p *pace) unstarted(end int64) int64 {
	if p.over != nil && p.ctx.Err() != nil {
		<-p.over
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.skipped
	if p.random == nil {
		return n
	}
	for p.start+int64(p.at) <= end {
		p.take()
		n++
	}
	return n
}
